// The link between two machines, disturbed by netem on both ends, so in both directions.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/history/other_host.h"

namespace rkv::history {

class Netem {
 public:
  struct Packets {
    std::uint64_t sent = 0;
    std::uint64_t dropped = 0;
  };

  explicit Netem(OtherHost& host) : host_(host) {}

  // As tc's netem takes it: "loss 1%".
  void disturb(const std::string& how);
  void restore();
  // Whether the disturbance holds no packet back at the moment, on either end.
  bool is_empty() const;
  void cut() { disturb("loss 100%"); }
  // Nothing passes that comes from or goes to one of these ports, of UDP or TCP.
  void cut_ports(const std::vector<int>& ports);
  // The packets that have passed through the disturbance that was removed last.
  const Packets& packets() const { return packets_; }

 private:
  void run_on_both(const std::string& command);

  OtherHost& host_;
  Packets packets_;
};

}  // namespace rkv::history
