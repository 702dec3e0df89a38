#include "rkv/scan.h"

#include <limits>
#include <utility>

namespace rkv {

Scanner::Scanner(void* source, PageOf page_of, const ScanOptions& options)
    : source_(source),
      page_of_(page_of),
      prefix_(options.prefix),
      start_(options.start),
      end_(options.end),
      token_(options.token),
      options_(options),
      left_(options.limit != 0 ? options.limit : std::numeric_limits<std::uint64_t>::max()) {}

Status Scanner::next_page() {
  options_.prefix = prefix_;
  options_.start = start_;
  options_.end = end_;
  options_.token = token_;
  options_.limit =
      left_ <= std::numeric_limits<std::uint32_t>::max() ? static_cast<std::uint32_t>(left_) : 0;
  RKV_ASSIGN_OR_RETURN(ScanPage page, page_of_(source_, options_));
  if (any_shown_ && !page.entries().empty()) {
    const std::string_view first = page.entries().front().key;
    if (options_.reverse ? first >= last_key_ : first <= last_key_) {
      return fail(Code::kCorrupt, "the server's scan pages are not in order");
    }
  }
  page_ = std::move(page);
  token_ = page_.token();
  over_ = token_.empty();
  next_ = 0;
  return {};
}

Result<const ScanEntry*> Scanner::next() {
  if (left_ == 0) return nullptr;
  while (next_ == page_.entries().size()) {
    if (over_) return nullptr;
    if (!page_.entries().empty()) {
      last_key_ = page_.entries().back().key;
      any_shown_ = true;
    }
    RKV_RETURN_IF_ERROR(next_page());
  }
  --left_;
  return &page_.entries()[next_++];
}

const ScanEntry* Scanner::step() {
  const auto entry = next();
  status_ = entry ? Status{} : Status(std::unexpected(entry.error()));
  return entry ? *entry : nullptr;
}

}  // namespace rkv
