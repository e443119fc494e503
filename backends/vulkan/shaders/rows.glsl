/* Rows of an operand: vulkan_rows and vulkan_sizes of vulkan.h. */
struct Rows {
  uint64_t address;
  uint outer, inner; /* bytes */
};

uint64_t row_of(Rows rows, uint r, uint inner_rows) {
  return rows.address + uint64_t(r / inner_rows) * rows.outer + uint64_t(r % inner_rows) * rows.inner;
}
