/* soft_cap: cap * tanh(scale * x / cap), or scale * x without a cap. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

float element(float x, float unused) {
  return cap > 0.0 ? cap * tanh_of(scale * x / cap) : scale * x;
}
ELEMENTWISE_MAIN
