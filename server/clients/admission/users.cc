#include "server/clients/admission/users.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/auth/private_file.h"
#include "common/parse.h"

namespace rkv::server {

namespace {

constexpr std::string_view kSpaces = " \t\r";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(kSpaces); at != std::string_view::npos;
       at = line.find_first_not_of(kSpaces)) {
    line.remove_prefix(at);
    const std::string_view word = line.substr(0, line.find_first_of(kSpaces));
    words.push_back(word);
    line.remove_prefix(word.size());
  }
  return words;
}

// Returns what is wrong with the words of a line, or an empty text. The sentence quotes no word of
// the line: it goes to the log, and the word may be a key in the wrong place.
std::string read_user(const std::vector<std::string_view>& words, User& user) {
  if (words.size() != 4) {
    return fmt::format("a line is NAME ROLE STORED-KEY SERVER-KEY, and this one has {} words",
                       words.size());
  }
  if (!is_user_name(words[0])) {
    return "the name must have 1 to 64 letters, digits, '.', '_' and '-', and begin with a letter, "
           "digit or '_'";
  }
  const auto role = parse_role(words[1]);
  if (!role) return "the role, the second word, must be read, write or admin";
  user.name = std::string(words[0]);
  user.role = *role;
  if (!from_hex(words[2], user.keys.stored_key) || !from_hex(words[3], user.keys.server_key)) {
    return "a key must have 64 hexadecimal digits: make lines by kvserver user add";
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Users>> Users::load(const std::string& path, std::string* problem) {
  RKV_ASSIGN_OR_RETURN(const std::string text, read_private_file(path, kLongestFile, problem));
  return parse(text, path, problem);
}

Result<std::shared_ptr<const Users>> Users::parse(std::string_view text, const std::string& path,
                                                  std::string* problem) {
  auto users = std::make_shared<Users>();
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words.front().starts_with('#')) continue;
    User user;
    std::string wrong = read_user(words, user);
    if (wrong.empty()) {
      const auto made = std::make_shared<const User>(std::move(user));
      Lines& lines = users->by_number_[number_of_user(made->name)];
      if (lines.older == nullptr) {
        lines.older = made;
      } else if (lines.older->name != made->name) {
        wrong = "its name and one above have the same number: choose another name";
      } else if (lines.newer != nullptr) {
        wrong = "its user has two lines above: remove one of them";
      } else if (*lines.older == *made) {
        wrong = "it is the same as one above: remove one of the two lines";
      } else if (lines.older->role != made->role) {
        wrong = "its user has another role in a line above: give both the same";
      } else {
        lines.newer = made;
      }
    }
    if (wrong.empty()) continue;
    *problem = fmt::format("{}: line {}: {}", shown(path), number, wrong);
    return fail(Code::kInvalidArgument, "a line of the users file is invalid");
  }
  return users;
}

std::string Users::line_of(const User& user) {
  return fmt::format("{} {} {} {}", user.name, to_string(user.role), to_hex(user.keys.stored_key),
                     to_hex(user.keys.server_key));
}

std::shared_ptr<const User> Users::find(std::uint32_t number) const {
  const auto at = by_number_.find(number);
  return at == by_number_.end() ? nullptr : at->second.older;
}

std::shared_ptr<const User> Users::find_newer(std::uint32_t number) const {
  const auto at = by_number_.find(number);
  return at == by_number_.end() ? nullptr : at->second.newer;
}

std::shared_ptr<const Users> Users::without(std::string_view name) const {
  auto others = std::make_shared<Users>(*this);
  const auto at = others->by_number_.find(number_of_user(name));
  if (at != others->by_number_.end() && at->second.older->name == name)
    others->by_number_.erase(at);
  return others;
}

bool Users::has(const User& user) const {
  const std::uint32_t number = number_of_user(user.name);
  for (const auto& found : {find(number), find_newer(number)}) {
    if (found != nullptr && *found == user) return true;
  }
  return false;
}

}  // namespace rkv::server
