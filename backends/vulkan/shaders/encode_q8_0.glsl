/* One block of q8_0 from 32 elements of a row: the scale makes the largest magnitude 127. */
void store_q8_0(uint64_t block, uint64_t row, uint first, uint type) {
  const float limit = 65504.0 * 127.0;
  float peak = 0;
  for (uint i = 0; i < 32; i++) {
    float value = abs(load_element(row, first + i, type));
    peak = is_nan(value) ? peak : max(peak, min(value, limit));
  }
  float scale = peak / 127.0, inverse = scale == 0.0 ? 0.0 : 1.0 / scale;
  Halves(block).v[0] = uint16_t(float_to_half(scale));
  for (uint i = 0; i < 32; i += 2) {
    uint pair = 0;
    for (uint j = 0; j < 2; j++) {
      float value = load_element(row, first + i + j, type);
      float scaled = is_nan(value) ? 0.0 : clamp(value, -limit, limit) * inverse;
      int code = int(min(floor(abs(scaled) + 0.5), 127.0));
      pair |= uint((scaled < 0.0 ? -code : code) & 255) << 8 * j;
    }
    Halves(block).v[1 + i / 2] = uint16_t(pair);
  }
}
