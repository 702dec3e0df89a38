#include "rkv/rdma/group/cluster_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "common/check.h"
#include "common/random.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::size_t kMaxLine = 512;  // a host name has at most 255 bytes

std::unexpected<Error> refuse(std::string* problem, std::string text) {
  if (problem != nullptr) *problem = std::move(text);
  return fail(Code::kInvalidArgument, "the cluster file is wrong");
}

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && (is_space(text.back()) || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

struct Entry {
  std::uint32_t rank;
  HostPort address;
  std::size_t line;
};

// The reason why an address is invalid, or nullptr.
const char* fault_of(const HostPort& address) {
  if (address.host.empty()) return "the host is missing";
  if (address.port == 0) return "port 0 cannot be connected to";
  return nullptr;
}

// Parses one line into an entry. Returns the reason if the line is invalid.
std::optional<std::string> read_line(std::string_view line, Entry& out) {
  if (line.size() > kMaxLine) return "longer than 512 bytes";
  const auto odd = std::ranges::find_if(
      line, [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 127; });
  if (odd != line.end()) return "a control character";
  const auto end = std::ranges::find_if(line, is_space);
  const std::string_view rank(line.begin(), end);
  const std::string_view address = trim(std::string_view(end, line.end()));
  const auto [stop, error] = std::from_chars(rank.data(), rank.data() + rank.size(), out.rank);
  if (error != std::errc{} || stop != rank.data() + rank.size()) {
    return fmt::format("'{}' is not a rank: a line is RANK HOST:PORT", rank);
  }
  if (rank.size() > 1 && rank.front() == '0') return "a rank with a leading zero";
  if (address.empty()) return "the address is missing: a line is RANK HOST:PORT";
  if (std::ranges::any_of(address, is_space)) return "something follows the address";
  const Result<HostPort> where = parse_host_port(address);
  if (!where) return fmt::format("'{}': {}", address, where.error().text);
  out.address = *where;
  if (const char* fault = fault_of(*where)) return std::string(fault);
  return std::nullopt;
}

}  // namespace

Result<Cluster> Cluster::parse(std::string_view text, std::string* problem) {
  if (text.size() > kMaxFileBytes) return refuse(problem, "longer than 1 MiB");
  std::vector<Entry> entries;
  std::map<std::uint32_t, std::size_t> ranks;  // rank -> line number
  std::map<std::string, std::size_t> addresses;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    Entry entry{.rank = 0, .address = {}, .line = number};
    if (const auto wrong = read_line(line, entry)) {
      return refuse(problem, fmt::format("line {}: {}", number, *wrong));
    }
    if (entry.rank >= kMaxRanks) {
      return refuse(problem, fmt::format("line {}: rank {} is above the highest possible rank, {}",
                                         number, entry.rank, kMaxRanks - 1));
    }
    if (const auto [at, fresh] = ranks.emplace(entry.rank, number); !fresh) {
      return refuse(problem, fmt::format("line {}: rank {} is already in line {}", number,
                                         entry.rank, at->second));
    }
    const std::string address = entry.address.to_string();
    if (const auto [at, fresh] = addresses.emplace(address, number); !fresh) {
      return refuse(problem,
                    fmt::format("line {}: {} is already in line {}", number, address, at->second));
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return refuse(problem, "the file names no rank");
  std::ranges::sort(entries, {}, &Entry::rank);
  std::vector<HostPort> out;
  for (const Entry& entry : entries) {
    if (entry.rank != out.size()) {
      return refuse(problem, fmt::format("line {}: rank {}, but rank {} is missing", entry.line,
                                         entry.rank, out.size()));
    }
    out.push_back(entry.address);
  }
  return Cluster(std::move(out));
}

Result<Cluster> Cluster::of(std::vector<HostPort> addresses, std::string* problem) {
  if (addresses.size() > kMaxRanks) return refuse(problem, "more than 4096 ranks");
  for (const HostPort& address : addresses) {
    if (const char* fault = fault_of(address)) return refuse(problem, fault);
  }
  return parse(Cluster(std::move(addresses)).to_text(), problem);
}

Result<Cluster> Cluster::load(const std::string& path, std::string* problem) {
  const auto unreadable = [&](std::unexpected<Error> why) {
    if (problem != nullptr) *problem = path;
    return why;
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return unreadable(verb_error("open", errno));
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t length = 0;
  ssize_t got = 1;
  while (got != 0 && length < text.size()) {
    got = ::read(fd, text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    length += static_cast<std::size_t>(got);
  }
  const int sys_errno = errno;
  ::close(fd);
  if (got < 0) return unreadable(verb_error("read", sys_errno));
  if (length > kMaxFileBytes) {
    return unreadable(fail(Code::kTooLarge, "a cluster file is at most 1 MiB long"));
  }
  text.resize(length);
  return parse(text, problem);
}

const HostPort& Cluster::operator[](std::uint32_t rank) const {
  RKV_CHECK(rank < addresses_.size(), "no such rank in the cluster");
  return addresses_[rank];
}

Status Cluster::check_self(std::uint32_t rank) const {
  if (rank < size()) return {};
  return fail(Code::kInvalidArgument, "this process's own rank is not in the cluster file");
}

std::uint64_t Cluster::digest() const {
  std::uint64_t digest = 0x726b76'636c7573;  // any start but 0
  for (const char c : to_text())
    digest = mix64(digest ^ static_cast<unsigned char>(c));
  return digest;
}

std::string Cluster::to_text() const {
  std::string text;
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    text += fmt::format("{} {}\n", rank, addresses_[rank].to_string());
  return text;
}

}  // namespace rkv::rdma
