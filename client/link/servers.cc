#include "client/link/servers.h"

#include <algorithm>

#include "common/wire.h"

namespace rkv::client {

std::vector<std::string> Servers::entries(std::string_view text) {
  std::vector<std::string> entries;
  for (std::size_t from = 0;;) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    entries.emplace_back(text.substr(from, comma - from));
    if (comma == text.size()) return entries;
    from = comma + 1;
  }
}

Status Servers::check(std::string_view text) {
  if (!is_list(text)) return {};
  const std::vector<std::string> all = entries(text);
  for (auto entry = all.begin(); entry != all.end(); ++entry) {
    if (!is_server_address(*entry)) {
      return fail(Code::kInvalidArgument,
                  "the servers of a group are HOST:PORT or [IPv6]:PORT, separated by commas");
    }
    if (std::find(all.begin(), entry, *entry) != entry) {
      return fail(Code::kInvalidArgument, "a server of the group is named twice: name it once");
    }
  }
  return {};
}

Servers::Servers(std::string_view text) {
  for (const std::string& entry : entries(text))
    known_.push_back({.address = entry});
  listed_ = known_.size();
}

std::size_t Servers::place_of(std::string_view primary) {
  const auto is_it = [&](const Known& known) { return known.address == primary; };
  const auto found = std::ranges::find_if(known_, is_it);
  if (found != known_.end()) return static_cast<std::size_t>(found - known_.begin());
  if (known_.size() < listed_ + kMostLearned) {
    known_.push_back({.address = std::string(primary)});
    return known_.size() - 1;
  }
  const std::size_t place = listed_ + replaced_++ % kMostLearned;
  known_[place] = {.address = std::string(primary)};
  return place;
}

bool Servers::failed(std::string_view why, std::string_view primary, bool was_cut) {
  if (!was_cut || known_[current_].why.empty()) known_[current_].why = why;
  attempted_ = current_;
  const bool is_other = !primary.empty() && primary != current();
  if (is_other) known_[current_].why.append(" ").append(primary);
  current_ = is_other ? place_of(primary) : (current_ + 1) % known_.size();
  ++attempts_;
  return are_several() && attempts_ < known_.size() + (is_other ? 1 : 0);
}

void Servers::distrusted() {
  known_[current_].why = "it does not prove to be the primary any more";
  current_ = (current_ + 1) % known_.size();
}

bool Servers::may_be_another() const {
  return known_[attempted_].has_other_store &&
         !std::ranges::all_of(known_, &Known::has_other_store);
}

void Servers::connected() {
  attempts_ = 0;
  for (Known& known : known_) {
    known.why.clear();
    known.has_other_store = false;
  }
}

std::string Servers::tried() const {
  std::string text;
  for (const Known& known : known_) {
    if (known.why.empty()) continue;
    text.append(text.empty() ? "" : "; ").append(known.address).append(": ").append(known.why);
  }
  return text;
}

}  // namespace rkv::client
