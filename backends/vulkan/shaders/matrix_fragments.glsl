/* Fragments of 16 x 16 halves, made of what each invocation holds of them, eight components: four columns
 * of row g, then the same four of row g + 8, g being a quarter of its number. Which columns does not
 * matter as long as both operands agree, so they may be neighbours. The extension leaves open where
 * components lie; fragments_probe.comp tells whether it is so. */

#define COMPONENTS_OF(words)                                                                         \
  [[unroll]] for (uint e = 0; e < 4; e++) {                                                          \
    f16vec2 two = unpackFloat2x16(words[e]);                                                         \
    fragment[2 * e] = two.x;                                                                         \
    fragment[2 * e + 1] = two.y;                                                                     \
  }

coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fragment_of_x(uvec4 words) {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> fragment;
  COMPONENTS_OF(words)
  return fragment;
}

/* Rows of the weight are columns of its fragments. */
coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> fragment_of_weight(uvec4 words) {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> fragment;
  COMPONENTS_OF(words)
  return fragment;
}
