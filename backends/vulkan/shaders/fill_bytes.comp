/* A few bytes of one value: what vkCmdFillBuffer leaves at the ends. One workgroup. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

layout(push_constant) uniform Push {
  uint64_t address;
  uint n_bytes, value;
};

void main() {
  for (uint i = gl_LocalInvocationID.x; i < n_bytes; i += WORKGROUP)
    Bytes(address).v[i] = uint8_t(value);
}
