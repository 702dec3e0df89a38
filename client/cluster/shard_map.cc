#include "rkv/shard_map.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/bytes.h"
#include "common/hash.h"
#include "common/parse.h"

namespace rkv {

namespace {

std::unexpected<Error> wrong(std::string* problem, std::string sentence) {
  if (problem != nullptr) *problem = std::move(sentence);
  return fail(Code::kInvalidArgument, "the list of servers is wrong");
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

// Returns the canonical text of an IPv6 address; a zone (%eth0) stays as it is.
std::optional<std::string> normal_ipv6(std::string_view text) {
  const std::size_t percent = std::min(text.find('%'), text.size());
  in6_addr address{};
  if (inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(), &address) != 1) {
    return std::nullopt;
  }
  std::array<char, INET6_ADDRSTRLEN> out{};
  inet_ntop(AF_INET6, &address, out.data(), out.size());
  return out.data() + std::string(text.substr(percent));
}

char small(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Printable characters without those that have a meaning in a list.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= ShardMap::kMaxNameBytes &&
         std::ranges::all_of(text, [](char c) {
           return c > ' ' && c < 0x7F && c != '=' && c != ',' && c != '#' && c != '*';
         });
}

// [NAME=]HOST:PORT[*WEIGHT]
std::optional<ShardServer> parse_server(std::string_view text) {
  ShardServer server;
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    server.name = trimmed(text.substr(0, equals));
    if (server.name.empty()) return std::nullopt;
    text.remove_prefix(equals + 1);
  }
  if (const std::size_t star = text.rfind('*'); star != std::string_view::npos) {
    const auto weight = parse_number<std::uint32_t>(trimmed(text.substr(star + 1)));
    if (!weight) return std::nullopt;
    server.weight = *weight;
    text = text.substr(0, star);
  }
  server.address = trimmed(text);
  return server;
}

// Normalizes the addresses. Returns what is wrong with the list, or an empty text.
std::string check_and_normalise(std::vector<ShardServer>& servers) {
  if (servers.empty()) return "the list of servers is empty: name one HOST:PORT at least";
  if (servers.size() > ShardMap::kMaxServers) {
    return fmt::format("the list names {} servers, but at most {} can make one store",
                       servers.size(), ShardMap::kMaxServers);
  }
  std::uint32_t weights = 0;
  for (ShardServer& server : servers) {
    auto address = normal_address(server.address);
    if (!address) return fmt::format("'{}': {}", server.address, address.error().text);
    server.address = std::move(*address);
    if (!server.name.empty() && !is_name(server.name)) {
      return fmt::format(
          "'{}' is not a server name: up to {} visible characters without = , # and *", server.name,
          ShardMap::kMaxNameBytes);
    }
    if (server.weight < 1 || server.weight > ShardMap::kMaxWeight) {
      return fmt::format("{} has the weight {}: weights are 1 to {}", server.address, server.weight,
                         ShardMap::kMaxWeight);
    }
    weights += server.weight;
  }
  if (weights > ShardMap::kMaxWeights) {
    return fmt::format("the weights add up to {}, but at most {} are possible: halve them all",
                       weights, ShardMap::kMaxWeights);
  }
  for (auto one = servers.begin(); one != servers.end(); ++one) {
    for (auto other = servers.begin(); other != one; ++other) {
      if (one->address == other->address) {
        return fmt::format("two servers of the list have the address {}: name it once",
                           one->address);
      }
      if (one->identity() == other->identity()) {
        return fmt::format("two servers of the list have the name {}: give one another name",
                           one->identity());
      }
    }
  }
  return {};
}

}  // namespace

Result<std::string> normal_address(std::string_view text) {
  constexpr const char* kWanted = "a server is HOST:PORT or [IPv6]:PORT";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail(Code::kInvalidArgument, kWanted);
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number<unsigned>(text.substr(colon + 1), 1, 65535);
  if (!port) return fail(Code::kInvalidArgument, "its port is not a number from 1 to 65535");
  if (host.starts_with('[') && host.ends_with(']')) {
    const auto address = normal_ipv6(host.substr(1, host.size() - 2));
    if (!address) {
      return fail(Code::kInvalidArgument, "the text between the brackets is not an IPv6 address");
    }
    return fmt::format("[{}]:{}", *address, *port);
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  const bool strange = std::ranges::any_of(host, [](char c) {
    return c <= ' ' || c >= 0x7F || c == ':' || c == '[' || c == ']' || c == '/';
  });
  if (host.empty() || strange) return fail(Code::kInvalidArgument, kWanted);
  std::string name(host);
  std::ranges::transform(name, name.begin(), small);
  return fmt::format("{}:{}", name, *port);
}

Result<ShardMap> ShardMap::create(std::vector<ShardServer> servers, std::string* problem) {
  if (std::string sentence = check_and_normalise(servers); !sentence.empty()) {
    return wrong(problem, std::move(sentence));
  }
  return ShardMap(std::move(servers));
}

Result<ShardMap> ShardMap::parse(std::string_view text, std::string* problem) {
  std::vector<ShardServer> servers;
  const bool one_line = text.find('\n') == std::string_view::npos;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    while (!line.empty()) {
      const std::size_t comma = std::min(line.find(','), line.size());
      const std::string_view word = trimmed(line.substr(0, comma));
      const bool last = comma == line.size();
      const auto server = parse_server(word);
      const auto address =
          server ? normal_address(server->address)
                 : fail(Code::kInvalidArgument, "a server is [NAME=]HOST:PORT[*WEIGHT]");
      if (!address || (!last && comma + 1 == line.size())) {
        const std::string where = one_line ? "" : fmt::format("line {}: ", number);
        return wrong(problem, address
                                  ? fmt::format("{}a comma ends the list", where)
                                  : fmt::format("{}'{}': {}", where, word, address.error().text));
      }
      servers.push_back(*server);
      line.remove_prefix(last ? comma : comma + 1);
    }
  }
  return create(std::move(servers), problem);
}

// Computes the owner of 2^17 slots, with one hash for each slot and unit of weight: a millisecond
// for a server of weight 1.
ShardMap::ShardMap(std::vector<ShardServer> servers) : servers_(std::move(servers)) {
  if (servers_.size() == 1) return;
  struct Candidate {
    std::uint64_t seed;
    std::uint8_t server;
  };
  std::vector<std::uint8_t> order(servers_.size());  // by identity, for equal scores
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::uint8_t>(i);
  std::ranges::sort(order, {}, [&](std::uint8_t i) { return servers_[i].identity(); });
  std::vector<Candidate> candidates;
  for (const std::uint8_t i : order) {
    for (std::uint32_t j = 0; j < servers_[i].weight; ++j)
      candidates.push_back({xxh3(as_bytes(servers_[i].identity()), kSeed + j), i});
  }
  auto slots = std::make_shared<Slots>();
  for (std::uint32_t slot = 0; slot < slots->size(); ++slot) {
    std::array<std::byte, sizeof slot> bytes;
    store_le(bytes.data(), slot);
    std::uint64_t best = 0;
    std::uint8_t owner = candidates.front().server;
    for (const Candidate& one : candidates) {
      const std::uint64_t score = xxh3(bytes, one.seed);
      if (score <= best) continue;
      best = score;
      owner = one.server;
    }
    (*slots)[slot] = owner;
  }
  slots_ = std::move(slots);
}

std::size_t ShardMap::look_up(std::string_view key) const {
  return (*slots_)[xxh3(as_bytes(key), kSeed) >> (64 - kSlotBits)];
}

}  // namespace rkv
