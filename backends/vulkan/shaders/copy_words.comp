/* A short copy. Copies by the driver wait for all dispatches, and dispatches for them, far longer
 * than dispatches for each other. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "groups.glsl"

layout(push_constant) uniform Push {
  uint64_t to, from;
  uint n_words;
};

void main() {
  uint i = group_index() * WORKGROUP + gl_LocalInvocationID.x;
  if (i < n_words)
    Words(to).v[i] = Words(from).v[i];
}
