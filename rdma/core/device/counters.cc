#include "rkv/rdma/counters.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <tuple>

namespace rkv::rdma {
namespace {

std::optional<std::uint64_t> read_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text;
  if (!std::getline(in, text)) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns false if the directory does not exist.
bool read_directory(const std::filesystem::path& directory, CounterSource source,
                    std::vector<PortCounter>& out) {
  std::error_code error;
  std::filesystem::directory_iterator files(directory, error);
  if (error) return false;
  for (; files != std::filesystem::directory_iterator(); files.increment(error)) {
    std::string name = files->path().filename().string();
    // A driver setting among the counters.
    if (name == "lifespan") continue;
    if (const auto value = read_number(files->path())) {
      out.push_back({.name = std::move(name), .source = source, .value = *value});
    }
  }
  return true;
}

}  // namespace

PortCounters::PortCounters(std::vector<PortCounter> counters) : counters_(std::move(counters)) {
  std::ranges::sort(counters_, {}, [](const PortCounter& c) { return std::tie(c.name, c.source); });
}

std::optional<std::uint64_t> PortCounters::get(std::string_view name) const {
  const auto at = std::ranges::lower_bound(counters_, name, {}, &PortCounter::name);
  if (at == counters_.end() || at->name != name) return std::nullopt;
  return at->value;
}

std::optional<std::uint64_t> PortCounters::get(std::string_view name, CounterSource source) const {
  const auto at = std::ranges::find_if(
      counters_, [&](const PortCounter& one) { return one.name == name && one.source == source; });
  if (at == counters_.end()) return std::nullopt;
  return at->value;
}

PortCounters PortCounters::since(const PortCounters& earlier) const {
  std::vector<PortCounter> out;
  for (const PortCounter& now : counters_) {
    const auto then = earlier.get(now.name, now.source);
    if (!then) continue;
    out.push_back(now);
    if (*then <= now.value) out.back().value -= *then;
  }
  return PortCounters(std::move(out));
}

Result<PortCounters> port_counters(std::string_view device, std::uint8_t port,
                                   std::string_view root) {
  if (device.empty() || device.find('/') != std::string_view::npos) {
    return fail(Code::kInvalidArgument, "the name of an RDMA device is not empty and has no slash");
  }
  const std::filesystem::path at =
      std::filesystem::path(root) / device / "ports" / std::to_string(port);
  std::vector<PortCounter> all;
  const bool standard = read_directory(at / "counters", CounterSource::kPort, all);
  const bool hardware = read_directory(at / "hw_counters", CounterSource::kHardware, all);
  if (!standard && !hardware) {
    return fail(Code::kNotFound,
                "this device and port have no counters: see /sys/class/infiniband");
  }
  return PortCounters(std::move(all));
}

void CompletionCounts::add(const WorkCompletion& completion) {
  ++completions;
  ++by_class[static_cast<std::size_t>(explain(completion.status).kind)];
  if (completion.ok() &&
      (completion.kind == WorkKind::kReceive || completion.kind == WorkKind::kRead)) {
    bytes += completion.byte_length;
  }
}

}  // namespace rkv::rdma
