/* glu: activation(gate) * up. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

float element(float gate, float up) { return activation_of(ACTIVATION, gate) * up; }
ELEMENTWISE_MAIN
