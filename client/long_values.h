// The values of a page that are too long for it, by GETs. These wait until what they find is in the
// write-ahead log, as the page is.
//
// Thread safety: one owner.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "client/engine.h"
#include "common/scan.h"
#include "rkv/scan.h"

namespace rkv::client {

class LongValues {
 public:
  static constexpr Durability kAtLeast = Durability::kWal;

  // `entries`: which of the page's. Both must stay as they are.
  LongValues(ScanPage& page, std::span<const std::size_t> entries);
  std::span<const std::string_view> keys() const { return keys_; }
  // What the GET of keys()[i] found.
  void take(std::size_t i, const Result<ValueView>& result);
  // After all: leaves out of the page what is gone.
  Status finish();

 private:
  ScanPage* page_;
  std::span<const std::size_t> entries_;
  std::vector<bool> gone_;
  std::vector<std::string_view> keys_;
  Status failed_;
};

// What a scan asks for, checked. Spans point where those of the options do.
Result<ScanQuery> query_of(const ScanOptions& options);

}  // namespace rkv::client
