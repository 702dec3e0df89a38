#include "tests/history/netem.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/system/process.h"

namespace rkv::history {
namespace {

std::string run_here(const std::string& command) {
  const auto ended = testing_support::run_program({"/bin/sh", "-c", command});
  EXPECT_EQ(ended.status, 0) << command << "\n" << ended.output;
  return ended.output;
}

// Parses a line " Sent 1234 bytes 12 pkt (dropped 3, ...".
Netem::Packets parse(const std::string& statistics) {
  Netem::Packets packets;
  const std::size_t at = statistics.find("Sent ");
  const int found = at == std::string::npos ? 0
                                            : std::sscanf(statistics.c_str() + at,
                                                          "Sent %*u bytes %lu pkt (dropped %lu",
                                                          &packets.sent, &packets.dropped);
  EXPECT_EQ(found, 2) << statistics;
  return packets;
}

}  // namespace

void Netem::run_on_both(const std::string& command) {
  host_.run(command);
  run_here(command);
}

void Netem::disturb(const std::string& how) {
  run_on_both("tc qdisc replace dev eth0 root netem " + how);
}

void Netem::cut_ports(const std::vector<int>& ports) {
  // All takes the first of two bands, but for what the filters send to the second.
  std::string command =
      "tc qdisc replace dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 "
      "0"
      " && tc qdisc add dev eth0 parent 1:2 netem loss 100%";
  for (const int port : ports) {
    for (const char* const end : {"sport", "dport"}) {
      command += fmt::format(
          " && tc filter add dev eth0 parent 1: protocol ip u32 match ip {} {} 0xffff flowid 1:2",
          end, port);
    }
  }
  run_on_both(command);
}

void Netem::restore() {
  const std::string command =
      "tc -s qdisc show dev eth0 | sed -n '/netem/,$p' && tc qdisc del dev eth0 root";
  const Packets here = parse(run_here(command));
  const Packets there = parse(host_.run(command));
  packets_ = {.sent = here.sent + there.sent, .dropped = here.dropped + there.dropped};
}

bool Netem::is_empty() const {
  const std::string command = "tc -s qdisc show dev eth0 root";
  const auto holds_none = [](const std::string& statistics) {
    return statistics.find("backlog 0b 0p") != std::string::npos;
  };
  return holds_none(run_here(command)) && holds_none(host_.run(command));
}

}  // namespace rkv::history
