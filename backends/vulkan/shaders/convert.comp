/* convert: the same values in another float type. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

float element(float x, float unused) { return x; }
ELEMENTWISE_MAIN
