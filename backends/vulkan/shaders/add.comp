/* add: the sum of two tensors; the second may be one row for all (its row strides are 0). */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

float element(float left, float right) { return left + right; }
ELEMENTWISE_MAIN
