#include "server/group/configuration/configuration.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/auth/proof.h"

namespace rkv::server {

namespace {

using nlohmann::json;

constexpr std::uint64_t kFormat = 1;
constexpr std::uint64_t kFormatWithRevoked = 2;
constexpr std::size_t kMostMembers = 16;
constexpr std::size_t kLongestAddress = 300;

std::string to_digits(std::uint64_t number) {
  std::string digits(16, '0');
  for (std::size_t i = 0; i < digits.size(); ++i)
    digits[i] = "0123456789abcdef"[(number >> (4 * (15 - i))) & 0xFU];
  return digits;
}

// Numbers of 64 bits are stored as text: other JSON readers round them.
std::optional<std::uint64_t> from_digits(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  std::uint64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (to_digits(number) != text) return std::nullopt;
  return number;
}

bool is_address(std::string_view address) {
  return !address.empty() && address.size() <= kLongestAddress &&
         std::ranges::all_of(address, [](char c) { return c > ' ' && c <= '~'; });
}

bool is_replica(const Replica& replica) {
  return is_user_name(replica.name) && is_address(replica.address) && replica.epoch != 0;
}

std::optional<Member> read_member(const json& value) {
  if (!value.is_object()) return std::nullopt;
  const auto name = value.find("name");
  const auto address = value.find("address");
  const auto epoch = value.find("epoch");
  const auto added_in = value.find("added_in");
  if (name == value.end() || address == value.end() || epoch == value.end() ||
      added_in == value.end() || !name->is_string() || !address->is_string() ||
      !added_in->is_number_unsigned())
    return std::nullopt;
  const auto number = from_digits(*epoch);
  if (!number) return std::nullopt;
  return Member{.name = name->get<std::string>(),
                .address = address->get<std::string>(),
                .epoch = *number,
                .added_in = added_in->get<std::uint64_t>()};
}

std::optional<RevokedSecret> read_revoked(const json& value) {
  if (!value.is_object()) return std::nullopt;
  const auto user = value.find("user");
  const auto digest = value.find("digest");
  if (user == value.end() || digest == value.end() || !user->is_string() || !digest->is_string())
    return std::nullopt;
  RevokedSecret secret{.user = user->get<std::string>()};
  const auto& digits = digest->get_ref<const std::string&>();
  if (!from_hex(digits, secret.digest) || to_hex(secret.digest) != digits) return std::nullopt;
  return secret;
}

// Returns false if the list is not valid. Only a format that defines the list may have one.
bool read_all_revoked(const json& value, std::uint64_t format, std::vector<RevokedSecret>& out) {
  const auto revoked = value.find("revoked");
  if (format != kFormatWithRevoked) return revoked == value.end();
  if (revoked == value.end() || !revoked->is_array()) return false;
  for (const json& each : *revoked) {
    auto one = read_revoked(each);
    if (!one) return false;
    out.push_back(std::move(*one));
  }
  return true;
}

// Checks as much of GROUP-1 to GROUP-3 as one configuration shows, and that its lists are in order.
bool is_sound(const GroupConfiguration& configuration) {
  const auto& members = configuration.members;
  if (configuration.group == 0 || configuration.number == 0 || configuration.term == 0 ||
      members.empty() || members.size() > kMostMembers || configuration.in_sync_count() == 0)
    return false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (!is_user_name(member.name) || !is_address(member.address)) return false;
    if (i != 0 && members[i - 1].name >= member.name) return false;
    if (member.in_sync() != (member.added_in != 0)) return false;
    if (member.added_in > configuration.number) return false;
  }
  const auto& revoked = configuration.revoked;
  if (revoked.size() > kMostRevoked) return false;
  for (std::size_t i = 0; i < revoked.size(); ++i) {
    if (!is_user_name(revoked[i].user) || (i != 0 && revoked[i - 1] >= revoked[i])) return false;
  }
  if (configuration.primary.empty()) return true;
  const Member* const primary = configuration.find(configuration.primary);
  return primary != nullptr && primary->in_sync();
}

std::optional<GroupConfiguration> read(const json& value) {
  if (!value.is_object()) return std::nullopt;
  for (const char* const field : {"format", "group", "number", "term", "primary", "members"}) {
    if (!value.contains(field)) return std::nullopt;
  }
  const json& format = value["format"];
  const json& number = value["number"];
  const json& term = value["term"];
  const json& primary = value["primary"];
  const json& members = value["members"];
  const auto group = from_digits(value["group"]);
  if (!format.is_number_unsigned() || format.get<std::uint64_t>() < kFormat ||
      format.get<std::uint64_t>() > kFormatWithRevoked || !group || !number.is_number_unsigned() ||
      !term.is_number_unsigned() ||
      term.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max() ||
      !(primary.is_string() || primary.is_null()) || !members.is_array())
    return std::nullopt;
  GroupConfiguration configuration{.group = *group,
                                   .number = number.get<std::uint64_t>(),
                                   .term = static_cast<std::uint32_t>(term.get<std::uint64_t>()),
                                   .primary = primary.is_null() ? "" : primary.get<std::string>(),
                                   .members = {}};
  for (const json& member : members) {
    auto one = read_member(member);
    if (!one) return std::nullopt;
    configuration.members.push_back(std::move(*one));
  }
  if (!read_all_revoked(value, format.get<std::uint64_t>(), configuration.revoked))
    return std::nullopt;
  return is_sound(configuration) ? std::optional(std::move(configuration)) : std::nullopt;
}

Result<std::uint32_t> next_term(std::uint32_t now, std::uint32_t least) {
  if (now == std::numeric_limits<std::uint32_t>::max())
    return fail(Code::kOutOfRange, "the group has used up all terms");
  return std::max(now + 1, least);
}

GroupConfiguration changed(const GroupConfiguration& now) {
  GroupConfiguration next = now;
  ++next.number;
  return next;
}

Member& member_of(GroupConfiguration& configuration, std::string_view name) {
  return *std::ranges::find(configuration.members, name, &Member::name);
}

void take_out_of_sync(Member& member) {
  member.epoch = 0;
  member.added_in = 0;
}

// Makes the replica a member in sync: a new member, or the one of its name.
Status put_in_sync(GroupConfiguration& next, const Replica& replica) {
  if (!is_replica(replica))
    return fail(Code::kInvalidArgument, "a replica needs a name, an address and an epoch");
  Member member{.name = replica.name,
                .address = replica.address,
                .epoch = replica.epoch,
                .added_in = next.number};
  const auto at = std::ranges::lower_bound(next.members, replica.name, {}, &Member::name);
  if (at != next.members.end() && at->name == replica.name) {
    *at = std::move(member);
    return {};
  }
  if (next.members.size() == kMostMembers)
    return fail(Code::kConflict, "the group has 16 members, which is the limit: remove one first");
  next.members.insert(at, std::move(member));
  return {};
}

}  // namespace

const Member* GroupConfiguration::find(std::string_view name) const {
  const auto at = std::ranges::find(members, name, &Member::name);
  return at == members.end() ? nullptr : &*at;
}

bool GroupConfiguration::has_in_sync(const Replica& replica) const {
  const Member* const member = find(replica.name);
  return member != nullptr && member->in_sync() && member->epoch == replica.epoch;
}

bool GroupConfiguration::has_primary(const Replica& replica) const {
  return primary == replica.name && has_in_sync(replica);
}

std::size_t GroupConfiguration::in_sync_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(members, &Member::in_sync));
}

bool GroupConfiguration::has_revoked(const RevokedSecret& secret) const {
  return std::ranges::binary_search(revoked, secret);
}

std::string to_text(const GroupConfiguration& configuration) {
  json members = json::array();
  for (const Member& member : configuration.members) {
    members.push_back({{"name", member.name},
                       {"address", member.address},
                       {"epoch", to_digits(member.epoch)},
                       {"added_in", member.added_in}});
  }
  const json primary = configuration.primary.empty() ? json() : json(configuration.primary);
  json value = {{"format", kFormat},
                {"group", to_digits(configuration.group)},
                {"number", configuration.number},
                {"term", configuration.term},
                {"primary", primary},
                {"members", std::move(members)}};
  if (configuration.revoked.empty()) return value.dump();
  json revoked = json::array();
  for (const RevokedSecret& secret : configuration.revoked)
    revoked.push_back({{"user", secret.user}, {"digest", to_hex(secret.digest)}});
  value["format"] = kFormatWithRevoked;
  value["revoked"] = std::move(revoked);
  return value.dump();
}

Result<GroupConfiguration> parse_configuration(std::string_view text) {
  const json value = json::parse(text, nullptr, false);
  auto configuration = value.is_discarded() ? std::nullopt : read(value);
  if (!configuration) {
    return fail(Code::kCorrupt,
                "the group's configuration in etcd is damaged, or of another version of rkv");
  }
  return std::move(*configuration);
}

Result<GroupConfiguration> founded(std::uint64_t group, const Replica& replica,
                                   std::uint32_t least_term) {
  GroupConfiguration first{.group = group,
                           .number = 1,
                           .term = std::max<std::uint32_t>(least_term, 1),
                           .primary = replica.name,
                           .members = {}};
  RKV_RETURN_IF_ERROR(put_in_sync(first, replica));
  return first;
}

Result<GroupConfiguration> joined(const GroupConfiguration& now, const Replica& replica) {
  const Member* const member = now.find(replica.name);
  if (member != nullptr && member->in_sync())
    return fail(Code::kConflict, "a process of this replica is in sync already");
  GroupConfiguration next = changed(now);
  RKV_RETURN_IF_ERROR(put_in_sync(next, replica));
  return next;
}

Result<GroupConfiguration> left(const GroupConfiguration& now, const Replica& replica) {
  if (!now.has_in_sync(replica))
    return fail(Code::kConflict, "this process of the replica is not in sync");
  if (now.has_primary(replica))
    return fail(Code::kConflict, "the primary leaves by a take-over of another replica");
  if (now.in_sync_count() == 1) return fail(Code::kConflict, "no other replica is in sync");
  GroupConfiguration next = changed(now);
  take_out_of_sync(member_of(next, replica.name));
  return next;
}

Result<GroupConfiguration> taken_over(const GroupConfiguration& now, const Replica& replica,
                                      std::uint32_t least_term) {
  if (!now.has_in_sync(replica))
    return fail(Code::kConflict, "only a replica that is in sync can become the primary");
  if (now.has_primary(replica)) return fail(Code::kConflict, "the replica is the primary already");
  GroupConfiguration next = changed(now);
  RKV_ASSIGN_OR_RETURN(next.term, next_term(now.term, least_term));
  if (!now.primary.empty()) take_out_of_sync(member_of(next, now.primary));
  next.primary = replica.name;
  return next;
}

Result<GroupConfiguration> restarted(const GroupConfiguration& now, const Replica& replica,
                                     std::uint32_t least_term) {
  const Member* const member = now.find(replica.name);
  if (member == nullptr || !member->in_sync())
    return fail(Code::kConflict, "no process of this replica is in sync");
  if (member->epoch == replica.epoch)
    return fail(Code::kConflict, "this process of the replica is in sync already");
  GroupConfiguration next = changed(now);
  if (now.in_sync_count() == 1) {
    RKV_ASSIGN_OR_RETURN(next.term, next_term(now.term, least_term));
    RKV_RETURN_IF_ERROR(put_in_sync(next, replica));
    next.primary = replica.name;
    return next;
  }
  take_out_of_sync(member_of(next, replica.name));
  if (now.primary == replica.name) next.primary.clear();
  return next;
}

Result<GroupConfiguration> forced(const GroupConfiguration& now, const Replica& replica,
                                  std::uint32_t least_term) {
  const Member* const member = now.find(replica.name);
  if (member != nullptr && member->epoch == replica.epoch)
    return fail(Code::kConflict, "this process of the replica is in sync already");
  GroupConfiguration next = changed(now);
  RKV_ASSIGN_OR_RETURN(next.term, next_term(now.term, least_term));
  for (Member& each : next.members)
    take_out_of_sync(each);
  RKV_RETURN_IF_ERROR(put_in_sync(next, replica));
  next.primary = replica.name;
  return next;
}

Result<GroupConfiguration> without(const GroupConfiguration& now, std::string_view name) {
  const Member* const member = now.find(name);
  if (member == nullptr) return fail(Code::kNotFound, "the group has no replica of that name");
  if (member->in_sync()) return fail(Code::kConflict, "the replica is in sync: stop it first");
  GroupConfiguration next = changed(now);
  std::erase_if(next.members, [&](const Member& each) { return each.name == name; });
  return next;
}

Result<GroupConfiguration> with_revoked(const GroupConfiguration& now,
                                        std::span<const RevokedSecret> secrets) {
  GroupConfiguration next = changed(now);
  for (const RevokedSecret& secret : secrets) {
    if (!is_user_name(secret.user))
      return fail(Code::kInvalidArgument, "a revoked secret needs the name of its user");
    const auto at = std::ranges::lower_bound(next.revoked, secret);
    if (at == next.revoked.end() || *at != secret) next.revoked.insert(at, secret);
  }
  if (next.revoked.size() == now.revoked.size())
    return fail(Code::kConflict, "all of these secrets are revoked already");
  if (next.revoked.size() > kMostRevoked) {
    return fail(Code::kConflict,
                "the group's list of revoked secrets is full (128): only this primary has shut the "
                "user out. Change each replica's users file, and make room by kvserver "
                "--forget-revoked");
  }
  return next;
}

Result<GroupConfiguration> without_revoked(const GroupConfiguration& now, std::string_view user) {
  GroupConfiguration next = changed(now);
  std::erase_if(next.revoked,
                [&](const RevokedSecret& each) { return user.empty() || each.user == user; });
  if (next.revoked.size() == now.revoked.size())
    return fail(Code::kNotFound, "the group has no revoked secret of this user");
  return next;
}

}  // namespace rkv::server
