/* activate: an activation function of each element. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

float element(float x, float unused) { return activation_of(ACTIVATION, x); }
ELEMENTWISE_MAIN
