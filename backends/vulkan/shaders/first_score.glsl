/* The score of a token before penalties: -infinity unless it is allowed and has a number. */
float first_score(uint r, uint t) {
  float logit = Floats(logits + uint64_t(r) * n_logits * 4).v[t];
  bool is_in = allowed == 0 || (Words(allowed).v[r * n_words + t / 32] >> t % 32 & 1u) != 0;
  return is_in && !is_nan(logit) ? logit : -INFINITY;
}
