#include "client/c/values.h"

#include <span>

namespace rkv::c {

bool texts_of(const rkv_slice* slices, std::size_t count, std::vector<std::string_view>& texts) {
  texts.reserve(count);
  for (const rkv_slice& slice : std::span(slices, count)) {
    const auto text = text_of(slice.data, slice.size);
    if (!text) return false;
    texts.push_back(*text);
  }
  return true;
}

}  // namespace rkv::c

extern "C" {

const void* rkv_value_data(const rkv_value* value) {
  return value == nullptr ? nullptr : value->value.value.c_str();
}
size_t rkv_value_size(const rkv_value* value) {
  return value == nullptr ? 0 : value->value.value.size();
}
uint64_t rkv_value_version(const rkv_value* value) {
  return value == nullptr ? 0 : value->value.version;
}
uint64_t rkv_value_expires_at_ms(const rkv_value* value) {
  return value == nullptr ? 0 : value->value.expires_at_ms;
}
int rkv_value_is_counter(const rkv_value* value) {
  return value != nullptr && value->value.is_counter ? 1 : 0;
}
int rkv_value_durability(const rkv_value* value) {
  return value == nullptr ? 0 : static_cast<int>(value->value.durability);
}
void rkv_value_free(rkv_value* value) {
  delete value;
}

size_t rkv_page_count(const rkv_page* page) {
  return page == nullptr ? 0 : page->page.entries().size();
}
rkv_status rkv_page_entry(const rkv_page* page, size_t index, rkv_entry* entry) {
  if (entry == nullptr || index >= rkv_page_count(page)) return RKV_INVALID_ARGUMENT;
  const rkv::ScanEntry& found = page->page.entries()[index];
  *entry = {.key = rkv::c::slice_of(found.key),
            .value = rkv::c::slice_of(found.value),
            .version = found.version,
            .expires_at_ms = found.expires_at_ms,
            .is_counter = found.is_counter ? 1 : 0};
  return RKV_OK;
}
rkv_slice rkv_page_token(const rkv_page* page) {
  return page == nullptr ? rkv_slice{} : rkv::c::slice_of(page->page.token());
}
void rkv_page_free(rkv_page* page) {
  delete page;
}

}  // extern "C"
