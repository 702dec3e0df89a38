#include "client/c/options.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "common/parse.h"

namespace rkv::c {

namespace {

std::string needs(std::string_view name, std::string_view what, std::string_view value) {
  return std::string(name) + " needs " + std::string(what) + ", not '" + shown(value) + "'";
}

template <class Enum, std::size_t count>
std::string set_word(std::string_view name, std::string_view value, Enum& target,
                     const std::array<std::pair<std::string_view, Enum>, count>& words) {
  std::string all;
  for (const auto& [word, meaning] : words) {
    if (word == value) {
      target = meaning;
      return {};
    }
    all += (all.empty() ? "" : ", ") + std::string(word);
  }
  return needs(name, "one of " + all, value);
}

template <class Number>
std::string set_number(std::string_view name, std::string_view value, Number& target,
                       std::int64_t least, std::int64_t most) {
  const auto number = parse_number<std::int64_t>(value, least, most);
  if (!number) {
    return needs(name, "a number from " + std::to_string(least) + " to " + std::to_string(most),
                 value);
  }
  target = static_cast<Number>(*number);
  return {};
}

std::string set_duration(std::string_view name, std::string_view value,
                         std::chrono::milliseconds& target) {
  const auto ms = parse_duration_ms(value);
  if (!ms) return needs(name, "a duration with a unit, such as 250ms or 5s", value);
  target = std::chrono::milliseconds(*ms);
  return {};
}

std::string set_size(std::string_view name, std::string_view value, std::size_t& target) {
  const auto bytes = parse_size(value);
  if (!bytes) return needs(name, "a size, such as 4096 or 64MiB", value);
  target = *bytes;
  return {};
}

std::string set_servers(std::string_view value, std::optional<ShardMap>& target) {
  std::string problem;
  auto map = ShardMap::parse(value, &problem);
  if (!map) return "servers: " + problem;
  target = std::move(*map);
  return {};
}

std::string set_text(std::string_view value, std::string& target) {
  target = value;
  return {};
}

}  // namespace

std::string set_option(rkv_options& options, std::string_view name, std::string_view value) {
  ClientOptions& client = options.client;
  constexpr std::array kPolling = {std::pair{std::string_view("adaptive"), Polling::kAdaptive},
                                   std::pair{std::string_view("busy"), Polling::kBusy},
                                   std::pair{std::string_view("event"), Polling::kEvent}};
  constexpr std::array kTransports = {std::pair{std::string_view("auto"), Transport::kAuto},
                                      std::pair{std::string_view("verbs"), Transport::kVerbs},
                                      std::pair{std::string_view("shm"), Transport::kShm},
                                      std::pair{std::string_view("tcp"), Transport::kTcp}};
  constexpr std::array kBooleans = {std::pair{std::string_view("true"), true},
                                    std::pair{std::string_view("false"), false}};
  if (name == "server") return set_text(value, client.server);
  if (name == "servers") return set_servers(value, options.servers);
  if (name == "name") return set_text(value, client.name);
  if (name == "user") return set_text(value, client.user);
  if (name == "secret") return set_text(value, client.secret);
  if (name == "device") return set_text(value, client.device);
  if (name == "timeout") return set_duration(name, value, client.timeout);
  if (name == "first-backoff") return set_duration(name, value, client.first_backoff);
  if (name == "longest-backoff") return set_duration(name, value, client.longest_backoff);
  if (name == "connect-timeout") return set_duration(name, value, client.connect_timeout);
  if (name == "cache") return set_size(name, value, client.cache_bytes);
  if (name == "large") return set_size(name, value, client.large_bytes);
  if (name == "reads-in-flight") return set_number(name, value, client.reads_in_flight, 1, 1024);
  if (name == "requests-in-flight")
    return set_number(name, value, client.requests_in_flight, 1, 256);
  if (name == "port") return set_number(name, value, client.port, 0, 255);
  if (name == "gid-index") return set_number(name, value, client.gid_index, -1, 255);
  if (name == "connections") return set_number(name, value, options.connections, 1, 64);
  if (name == "polling") return set_word(name, value, client.polling, kPolling);
  if (name == "transport") return set_word(name, value, client.transport, kTransports);
  if (name == "repeat-connect") return set_word(name, value, client.repeat_connect, kBooleans);
  return "a client has no option '" + shown(name) + "'";
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
    return wrong("only a put has if_absent, ttl_ms and expires_at_ms", error);
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
