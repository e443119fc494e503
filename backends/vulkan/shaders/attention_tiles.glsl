/* main() of attention on matrix units, around attend(). */
void main() {
  uint group = group_index(), split = group % n_splits;
  group /= n_splits;
  uint chunk = group % N_CHUNKS, kv_head = group / N_CHUNKS % N_KV_HEADS;
  /* Under a causal mask later tokens take longer: they start first. */
  uint n_tiles = (n_tokens + N_TILE_TOKENS - 1) / N_TILE_TOKENS;
  uint tile = group / (N_CHUNKS * N_KV_HEADS);
  if (tile >= n_tiles)
    return;
  uint first = (n_tiles - 1 - tile) * N_TILE_TOKENS;
  find_sequences(first);
  load_queries(first, kv_head, chunk);
  for (uint i = 0; i < min(n_found, N_ROWS); i++)
    attend(found[i], first, kv_head, chunk, split);
  barrier();
  /* Rows of no sequence are zero. */
  for (uint r = 0; r < N_ROWS; r++) {
    uint token = first + r / CHUNK;
    if (is_covered[r] || token >= n_tokens || !has_head(r, chunk))
      continue;
    for (uint column = gl_LocalInvocationID.x; column < HEAD; column += WORKGROUP)
      store_results(token, head_of(r, kv_head, chunk), split, -INFINITY, 0.0, column, 0.0);
  }
}
