#include "client/cli/secret_file.h"

#include <fmt/format.h>

#include <utility>

#include "common/auth/private_file.h"
#include "common/auth/proof.h"
#include "common/parse.h"

namespace rkv::cli {

namespace {
constexpr std::size_t kLongestSecretFile = 256;
}

std::string read_secret_file(const std::string& path, std::string& secret) {
  std::string problem;
  auto text = read_private_file(path, kLongestSecretFile, &problem);
  if (!text) return fmt::format("--secret-file: {}", problem);
  while (text->ends_with('\n') || text->ends_with('\r'))
    text->pop_back();
  if (!Secret::parse(*text)) {
    return fmt::format(
        "--secret-file: {} does not hold a secret, which is a line of 64 hexadecimal digits: "
        "kvserver user add makes it",
        shown(path));
  }
  secret = std::move(*text);
  return {};
}

}  // namespace rkv::cli
