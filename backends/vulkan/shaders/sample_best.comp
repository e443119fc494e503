/* The likeliest token of each piece of each row, before penalties: what sample.comp needs of rows
 * that draw nothing. One workgroup a piece, which leaves a score and a token; 0xffffffff is none. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"
#include "best.glsl"

layout(push_constant) uniform Push {
  uint64_t logits, allowed, bests;
  uint n_rows, n_logits, n_words, n_pieces;
};

#include "first_score.glsl"

void main() {
  uint r = group_index() / n_pieces, piece = group_index() % n_pieces;
  if (r >= n_rows)
    return;
  uint length = (n_logits + n_pieces - 1) / n_pieces, first = piece * length;
  float largest = 0;
  uint winner = 0xffffffffu;
  for (uint t = first + gl_LocalInvocationID.x; t < min(first + length, n_logits); t += WORKGROUP) {
    float score = first_score(r, t);
    if (score != -INFINITY && (winner == 0xffffffffu || score > largest)) {
      largest = score;
      winner = t;
    }
  }
  winner = workgroup_best(largest, winner);
  if (gl_LocalInvocationID.x == 0)
    Words2(bests).v[r * n_pieces + piece] = uvec2(floatBitsToUint(largest), winner);
}
