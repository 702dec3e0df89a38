#include "client/engine/long_values.h"

namespace rkv::client {

LongValues::LongValues(ScanPage& page, std::span<const std::size_t> entries)
    : page_(&page), entries_(entries), gone_(page.entries_.size()) {
  keys_.reserve(entries.size());
  for (const std::size_t index : entries)
    keys_.push_back(page.entries_[index].key);
}

// The GET's value is not older than the page. A key that no longer exists, or has become a
// one-sided counter, was removed during the scan.
void LongValues::take(std::size_t i, const Result<ValueView>& result) {
  ScanEntry& entry = page_->entries_[entries_[i]];
  if (result) {
    entry.value = page_->long_values_.emplace_back(result->value);
    entry.value_bytes = entry.value.size();
    entry.version = result->version;
    entry.expires_at_ms = result->expires_at_ms;
    entry.is_counter = result->is_counter;
  } else if (result.error().code == Code::kNotFound ||
             result.error().code == Code::kUnsupported) {  // a number in a cell
    gone_[entries_[i]] = true;
  } else if (failed_) {
    failed_ = std::unexpected(result.error());
  }
}

Status LongValues::finish() {
  if (!failed_) return failed_;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < page_->entries_.size(); ++i) {
    if (!gone_[i]) page_->entries_[kept++] = page_->entries_[i];
  }
  page_->entries_.resize(kept);
  return {};
}

}  // namespace rkv::client
