// Users: the users that may connect to a server with --users, their roles and their keys.
//
// The file has one user a line: NAME ROLE STORED-KEY SERVER-KEY, the keys in hexadecimal digits.
// While its secret is being exchanged, a user has two lines, the older first, and may use either
// secret. Empty lines and lines that begin with '#' are ignored. `kvserver user add` makes such
// lines. The keys alone are not enough to connect; the keys and one recorded proof are
// (common/auth/proof.h). So after a theft of the file all of its users need new secrets.
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
  // `path` is used in the sentence only.
  static Result<std::shared_ptr<const Users>> parse(std::string_view text, const std::string& path,
                                                    std::string* problem);
  // Returns the user's line, without an end of line.
  static std::string line_of(const User& user);

  // Returns the user's line, the older one if it has two. nullptr: no user has this number.
  std::shared_ptr<const User> find(std::uint32_t number) const;
  // Returns the newer of the user's two lines; nullptr: there is none.
  std::shared_ptr<const User> find_newer(std::uint32_t number) const;
  // Whether one of the user's lines is this one.
  bool has(const User& user) const;
  // Returns all users except this one.
  std::shared_ptr<const Users> without(std::string_view name) const;
  std::size_t count() const { return by_number_.size(); }

 private:
  struct Lines {
    std::shared_ptr<const User> older;
    std::shared_ptr<const User> newer;  // nullptr: the user has one line
  };
  std::map<std::uint32_t, Lines> by_number_;
};

}  // namespace rkv::server
