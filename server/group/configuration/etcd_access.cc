#include "server/group/configuration/etcd_access.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "common/auth/private_file.h"
#include "common/parse.h"

namespace rkv::server {

namespace {

constexpr std::size_t kLongestFile = std::size_t{1} << 20;

// Certificates are public, so the file may be readable by others.
Result<std::string> read_certificates(const std::string& path, std::string* problem) {
  if (path.empty()) return std::string();
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    *problem = fmt::format("cannot read {}: {}", shown(path), strerror(errno));
    return fail(Code::kIo, "a certificate cannot be read");
  }
  if (!text.contains("-----BEGIN CERTIFICATE-----")) {
    *problem = fmt::format("{} holds no certificate in the form PEM", shown(path));
    return fail(Code::kInvalidArgument, "no certificate");
  }
  return text;
}

Result<std::string> read_secret(const std::string& path, std::string* problem) {
  if (path.empty()) return std::string();
  return read_private_file(path, kLongestFile, problem);
}

}  // namespace

Result<EtcdAccess> EtcdAccess::load(const Files& files, std::string* problem) {
  EtcdAccess access;
  RKV_ASSIGN_OR_RETURN(access.ca, read_certificates(files.ca, problem));
  RKV_ASSIGN_OR_RETURN(access.cert, read_certificates(files.cert, problem));
  RKV_ASSIGN_OR_RETURN(access.key, read_secret(files.key, problem));
  RKV_ASSIGN_OR_RETURN(access.password, read_secret(files.password, problem));
  while (access.password.ends_with('\n') || access.password.ends_with('\r'))
    access.password.pop_back();
  access.user = files.user;
  if (!access.user.empty() && access.password.empty()) {
    *problem = fmt::format("{} holds no password", shown(files.password));
    return fail(Code::kInvalidArgument, "no password");
  }
  return access;
}

}  // namespace rkv::server
