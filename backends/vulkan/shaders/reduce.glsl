/* Sums and maxima over a workgroup, whatever the width of its subgroups. Every invocation must
 * call them, and gets the result. */
shared float reduce_parts[1024];

float workgroup_sum(float value) {
  value = subgroupAdd(value);
  if (subgroupElect())
    reduce_parts[gl_SubgroupID] = value;
  barrier();
  float sum = 0;
  for (uint i = 0; i < gl_NumSubgroups; i++)
    sum += reduce_parts[i];
  barrier();
  return sum;
}

float workgroup_max(float value) {
  value = subgroupMax(value);
  if (subgroupElect())
    reduce_parts[gl_SubgroupID] = value;
  barrier();
  float largest = reduce_parts[0];
  for (uint i = 1; i < gl_NumSubgroups; i++)
    largest = max(largest, reduce_parts[i]);
  barrier();
  return largest;
}
