// Bytes that C gives and gets.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "rkv/c.h"
#include "rkv/scan.h"
#include "rkv/values.h"

struct rkv_value {  // NOLINT(readability-identifier-naming)
  rkv::Value value;
};
struct rkv_page {  // NOLINT(readability-identifier-naming)
  rkv::ScanPage page;
};

namespace rkv::c {

// nullopt: `data` is null although `size` is not 0.
inline std::optional<std::string_view> text_of(const void* data, std::size_t size) {
  if (data == nullptr && size != 0) return std::nullopt;
  return data == nullptr ? std::string_view()
                         : std::string_view(static_cast<const char*>(data), size);
}
// Returns false if the data of a slice is null although its size is not 0.
bool texts_of(const rkv_slice* slices, std::size_t count, std::vector<std::string_view>& texts);

inline rkv_slice slice_of(std::string_view text) {
  return {.data = text.data(), .size = text.size()};
}

}  // namespace rkv::c
