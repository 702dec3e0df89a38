#include "server/group/connection/group_secret.h"

#include <fmt/format.h>

#include <optional>
#include <span>

#include "common/auth/digest.h"
#include "common/auth/private_file.h"
#include "common/parse.h"

namespace rkv::server {

namespace {
constexpr std::size_t kLongestFile = 256;
}

Result<GroupSecret> GroupSecret::load(const std::string& path, std::string* problem) {
  RKV_ASSIGN_OR_RETURN(std::string text, read_private_file(path, kLongestFile, problem));
  while (text.ends_with('\n') || text.ends_with('\r'))
    text.pop_back();
  const std::optional<Secret> secret = Secret::parse(text);
  cleanse(std::as_writable_bytes(std::span(text)));
  if (!secret) {
    *problem = fmt::format(
        "{} does not hold the secret of a group, which is a line of 64 hexadecimal digits: make it "
        "by: (umask 077; openssl rand -hex 32 >FILE)",
        shown(path));
    return fail(Code::kInvalidArgument, "the file does not hold the secret of a group");
  }
  return GroupSecret(*secret, false);
}

GroupSecret GroupSecret::well_known() {
  return {Secret{}, true};
}

}  // namespace rkv::server
