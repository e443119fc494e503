/* Number of this workgroup, the grid's dimensions joined: see vulkan_split_groups(). */
uint group_index() {
  return gl_WorkGroupID.x +
         gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
}
