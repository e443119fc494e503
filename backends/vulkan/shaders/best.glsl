/* The best of many candidates over a workgroup: the larger value, the lower index among equals. */
shared float best_values[1024];
shared uint best_indices[1024];

bool is_better(float value, uint index, float than, uint than_index) {
  return value > than || (value == than && index < than_index);
}

/* Reduces each invocation's candidate; every invocation gets the winner. Index 0xffffffff is no
 * candidate. NaN must have been left out before. */
uint workgroup_best(inout float value, uint index) {
  best_values[gl_LocalInvocationID.x] = value;
  best_indices[gl_LocalInvocationID.x] = index;
  barrier();
  for (uint stride = WORKGROUP / 2; stride > 0; stride /= 2) {
    if (gl_LocalInvocationID.x < stride) {
      uint other = gl_LocalInvocationID.x + stride;
      if (best_indices[other] != 0xffffffffu &&
          (best_indices[gl_LocalInvocationID.x] == 0xffffffffu ||
           is_better(best_values[other], best_indices[other],
                     best_values[gl_LocalInvocationID.x], best_indices[gl_LocalInvocationID.x]))) {
        best_values[gl_LocalInvocationID.x] = best_values[other];
        best_indices[gl_LocalInvocationID.x] = best_indices[other];
      }
    }
    barrier();
  }
  value = best_values[0];
  uint winner = best_indices[0];
  barrier();
  return winner;
}
