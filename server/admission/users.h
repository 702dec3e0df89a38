// Users: who may connect to a server with --users, in which role, and how each proves who it is.
//
// The file has one user a line: NAME ROLE STORED-KEY SERVER-KEY, the keys in hexadecimal digits.
// Empty lines and lines that begin with '#' are ignored. `kvserver user add` makes such lines.
// The keys alone let nobody connect; the keys and one recorded proof do (common/auth/proof.h). So
// after a theft of the file all of its users need new secrets.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/auth/proof.h"
#include "common/auth/role.h"
#include "rkv/result.h"

namespace rkv::server {

struct User {
  std::string name;
  Role role = Role::kRead;
  StoredKeys keys{};
  bool operator==(const User&) const = default;
};

class Users {
 public:
  static constexpr std::size_t kLongestFile = std::size_t{1} << 20;

  // Blocks on the disk. On failure `*problem` is a sentence that names the file and the line.
  static Result<std::shared_ptr<const Users>> load(const std::string& path, std::string* problem);
  // `path` is for the sentence only.
  static Result<std::shared_ptr<const Users>> parse(std::string_view text, const std::string& path,
                                                    std::string* problem);
  // The user's line, without an end of line.
  static std::string line_of(const User& user);

  // nullptr: no user has this number.
  std::shared_ptr<const User> find(std::uint32_t number) const;
  // Whether the user is here unchanged.
  bool has(const User& user) const;
  // All of them but this one.
  std::shared_ptr<const Users> without(std::string_view name) const;
  std::size_t count() const { return by_number_.size(); }

 private:
  std::map<std::uint32_t, std::shared_ptr<const User>> by_number_;
};

}  // namespace rkv::server
