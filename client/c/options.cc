#include "client/c/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include "client/engine/option_table.h"
#include "common/parse.h"

namespace rkv::c {

namespace {

// What the values of the option are.
std::string wanted(const client::ClientOption& option) {
  if (option.holds<std::chrono::milliseconds>())
    return "a duration with a unit, such as 250ms or 5s";
  if (option.holds<std::size_t>()) return "a size, such as 4096 or 64MiB";
  const auto words = client::words_of(option);
  if (words.empty()) return client::range_of(option);
  return fmt::format("one of {}", fmt::join(words, ", "));
}

std::string set_servers(std::string_view value, std::optional<ShardMap>& target) {
  std::string problem;
  auto map = ShardMap::parse(value, &problem);
  if (!map) return "servers: " + problem;
  target = std::move(*map);
  return {};
}

std::string set_connections(std::string_view value, std::size_t& target) {
  const auto number = parse_number<std::int64_t>(value, 1, 64);
  if (!number)
    return fmt::format("connections needs a number from 1 to 64, not '{}'", shown(value));
  target = static_cast<std::size_t>(*number);
  return {};
}

}  // namespace

std::string set_option(rkv_options& options, std::string_view name, std::string_view value) {
  if (name == "servers") return set_servers(value, options.servers);
  if (name == "connections") return set_connections(value, options.connections);
  const client::ClientOption* const option = client::find_option(name);
  if (option == nullptr) return fmt::format("a client has no option '{}'", shown(name));
  if (client::set_option(options.client, *option, value)) return {};
  return fmt::format("{} needs {}, not '{}'", name, wanted(*option), shown(value));
}

rkv_status wrong_size(rkv_error* error) {
  return wrong("options begin as RKV_..._OPTIONS_INIT; or they set what only a newer library knows",
               error);
}

rkv_status get_options(const rkv_get_options* given, GetOptions& options, rkv_error* error) {
  rkv_get_options own;
  if (!copy_options(given, own)) return wrong_size(error);
  if (own.at_least > RKV_SYNC) return wrong("at_least is a durability: 0 to 3", error);
  options.timeout = std::chrono::milliseconds(own.timeout_ms);
  options.at_least = static_cast<Durability>(std::max<std::uint32_t>(own.at_least, RKV_MEMORY));
  return RKV_OK;
}

rkv_status write_options(const rkv_write_options* given, PutOptions& options, rkv_error* error) {
  rkv_write_options own;
  if (!copy_options(given, own)) return wrong_size(error);
  if (own.durability > RKV_SYNC) return wrong("durability is 0 to 3", error);
  constexpr auto kMostMs = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (own.ttl_ms > kMostMs) return wrong("ttl_ms is too long", error);
  options.timeout = std::chrono::milliseconds(own.timeout_ms);
  options.durability = static_cast<Durability>(own.durability);
  options.ttl = std::chrono::milliseconds(own.ttl_ms);
  options.expires_at_ms = own.expires_at_ms;
  options.if_absent = own.if_absent != 0;
  if (own.has_if_version != 0) options.if_version = own.if_version;
  return RKV_OK;
}

rkv_status delete_options(const rkv_write_options* given, DeleteOptions& options,
                          rkv_error* error) {
  PutOptions all;
  if (const rkv_status status = write_options(given, all, error); status != RKV_OK) return status;
  if (all.if_absent || all.ttl.count() != 0 || all.expires_at_ms != 0)
    return wrong("only a put has if_absent, and only it and a touch ttl_ms and expires_at_ms",
                 error);
  options.write = {.durability = all.durability, .timeout = all.timeout};
  options.if_version = all.if_version;
  return RKV_OK;
}

rkv_status plain_options(const rkv_write_options* given, WriteOptions& options, rkv_error* error) {
  DeleteOptions all;
  if (const rkv_status status = delete_options(given, all, error); status != RKV_OK) return status;
  if (all.if_version) return wrong("a change of a counter has no if_version", error);
  options = all.write;
  return RKV_OK;
}

rkv_status timeout_option(const rkv_get_options* given, Timeout& timeout, rkv_error* error) {
  GetOptions all;
  if (const rkv_status status = get_options(given, all, error); status != RKV_OK) return status;
  if (all.at_least != Durability::kMemory)
    return wrong("a number of a counter is read without at_least", error);
  timeout = all.timeout;
  return RKV_OK;
}

}  // namespace rkv::c

extern "C" {

rkv_options* rkv_options_new(void) {
  try {
    return new rkv_options;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void rkv_options_free(rkv_options* options) {
  delete options;
}

rkv_status rkv_options_set(rkv_options* options, const char* name, const char* value,
                           rkv_error* error) {
  using rkv::c::guarded;
  using rkv::c::set_option;
  using rkv::c::wrong;
  return guarded(error, [&] {
    if (options == nullptr || name == nullptr || value == nullptr)
      return wrong("options, name and value must not be NULL", error);
    const std::string problem = set_option(*options, name, value);
    return problem.empty() ? RKV_OK : wrong(problem, error);
  });
}

}  // extern "C"
