// LongValues: GETs the values that are too long for a page of a scan. The GETs wait until their
// values are in the write-ahead log, like the page.
//
// Thread safety: one owner.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "rkv/scan.h"
#include "rkv/values.h"

namespace rkv::client {

class LongValues {
 public:
  static constexpr Durability kAtLeast = Durability::kWal;

  // `entries`: indices of the page's entries with long values. Both arguments must stay unchanged.
  LongValues(ScanPage& page, std::span<const std::size_t> entries);
  std::span<const std::string_view> keys() const { return keys_; }
  // Takes the result of the GET of keys()[i].
  void take(std::size_t i, const Result<ValueView>& result);
  // After all results: removes entries from the page whose keys no longer exist.
  Status finish();

 private:
  ScanPage* page_;
  std::span<const std::size_t> entries_;
  std::vector<bool> gone_;
  std::vector<std::string_view> keys_;
  Status failed_;
};

}  // namespace rkv::client
