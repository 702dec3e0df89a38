// A run of a simulated group: hosts, links between them, an etcd, clients, and who disturbs them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tests/sim/group/group_host.h"

namespace rkv::sim {

namespace {

constexpr std::size_t kHosts = 3;
constexpr Nanos kDisturbed = 30 * kNanosPerSecond;
// How long all may take to serve again, and how long they must then go on.
constexpr Nanos kHealed = 15 * kNanosPerSecond;
constexpr Nanos kServes = 2 * kNanosPerSecond;
constexpr Nanos kLongestFault = 3 * kNanosPerSecond;
// Messages and answers take 0.3 s each; a take-over comes between.
constexpr Nanos kLate = 1200 * kNanosPerMs;
constexpr Nanos kLongestCall = 3 * kNanosPerSecond;
constexpr Nanos kBetweenCalls = 100 * kNanosPerMs;

class Run {
 public:
  explicit Run(const GroupPlan& plan) : plan_(plan), scheduler_(plan.seed), etcd_(scheduler_) {
    etcd_.faults().long_in = draw({0, 50, 10});
    etcd_.faults().lost_in = draw({0, 50, 10});
    etcd_.faults().compares_nothing = plan.broken == BrokenRule::kEtcdComparesNothing;
    for (std::size_t i = 0; i < kHosts; ++i)
      hosts_.push_back(std::make_unique<GroupHost>(i, scheduler_, etcd_, plan_, outside()));
  }

  GroupVerdict run() {
    for (auto& host : hosts_) {
      GroupHost* const one = host.get();
      one->start();
      spawn("host", [one, this] {
        one->step();
        one->wait_for_work();
      });
      spawn("etcd", [one] { one->step_of_etcd(); });
    }
    spawn("watch", [this] { watch(); });
    spawn("writer", [this] { write(); });
    spawn("reader", [this] { read(); });
    spawn("expiry", [this] { expire(); });
    spawn("administrator", [this] { revoke(); });
    spawn("faults", [this] { disturb(); });
    scheduler_.spawn("end", [this] {
      scheduler_.sleep(kDisturbed);
      healed_ = true;
      for (const auto& host : hosts_) {
        host->mend_disk();
        etcd_.set_reachable(host->number(), true);
      }
      put_back();
      etcd_.faults() = {};
      etcd_.faults().compares_nothing = plan_.broken == BrokenRule::kEtcdComparesNothing;
      cut_.clear();
      closed_.clear();
      verdict_.stuck = see_all_serve();
      over_ = true;
    });
    if (scheduler_.run(100'000'000, 2 * (kDisturbed + kHealed)))
      verdict_.stuck = "the run does not end";
    for (const auto& host : hosts_) {
      verdict_.copies += host->copies();
      verdict_.handed_over += host->handed_over();
      if (host->lives()) host->kill();
    }
    verdict_.trace = scheduler_.trace_hash() ^ scheduler_.events();
    return verdict_;
  }

 private:
  struct Brief {
    std::uint64_t expiry_ms = 0;
    Nanos put_at = 0;
    Nanos lives = 0;
  };
  struct Link {
    std::size_t ends[2];  // the one that has connected, and the other
    std::uint64_t epochs[2];
    Nanos opened_at = 0;
    Nanos arrives[2] = {0, 0};  // the last message to each end
    bool is_open = true;
  };

  std::uint64_t draw(std::vector<std::uint64_t> from) {
    return from[scheduler_.random().below(from.size())];
  }
  void complain(const char* what) {
    if (verdict_.wrong == nullptr) verdict_.wrong = what;
  }
  void spawn(const char* name, std::function<void()> step) {
    scheduler_.spawn(name, [this, step = std::move(step)] {
      while (!over_)
        step();
    });
  }

  // The version up to which writes are answered, to clients that still wait.
  std::uint64_t answers_up_to() const {
    std::uint64_t mark = 0;
    for (const auto& host : hosts_)
      mark = std::max(mark, host->answers_up_to());
    return mark;
  }

  // nullptr: all do, and writes are answered, for some time without a break.
  const char* see_all_serve() {
    const char* stuck = nullptr;
    Nanos since = scheduler_.now();
    for (const Nanos until = since + kHealed; scheduler_.now() < until;) {
      const std::uint64_t writes = verdict_.writes;
      const std::uint64_t mark = answers_up_to();
      scheduler_.sleep(kServes / 4);
      // The clients are few and ask any replica: by chance none of them is answered for so long.
      const bool answers = verdict_.writes != writes || answers_up_to() > mark;
      stuck = !answers ? "no write is answered after all faults are over"
              : etcd_.stored().configuration->in_sync_count() != kHosts
                  ? "a replica is not in sync long after all faults are over"
                  : nullptr;
      if (stuck != nullptr) since = scheduler_.now();
      if (scheduler_.now() - since >= kServes) return nullptr;
    }
    return stuck != nullptr ? stuck : "service breaks off again and again without any fault";
  }

  // ---- links

  bool is_cut(std::size_t a, std::size_t b) const {
    return cut_.contains({std::min(a, b), std::max(a, b)});
  }

  GroupHost::Outside outside() {
    return {
        .connect = [this](std::size_t from, const std::string& to) { return connect(from, to); },
        .send = [this](std::size_t from, std::uint64_t link,
                       Arrival arrival) { send(from, link, std::move(arrival)); },
        .close = [this](std::uint64_t link) { break_link(link); },
        .call_back = [this](std::uint64_t link) { call_back(link); },
        .ended = [this](std::size_t host) { break_links_of(host); },
        .copy_engine = [this](std::size_t from, std::uint64_t link) { copy(from, link); }};
  }

  std::uint64_t connect(std::size_t from, const std::string& to) {
    const std::size_t other = static_cast<std::size_t>(to.back() - '0');
    if (other == from || is_cut(from, other) || closed_.contains(other) || !hosts_[other]->lives())
      return 0;
    links_[++last_link_] = {.ends = {from, other},
                            .epochs = {hosts_[from]->epoch(), hosts_[other]->epoch()},
                            .opened_at = scheduler_.now()};
    return last_link_;
  }

  // As BackCalls.
  void call_back(std::uint64_t number, Nanos pause = 0) {
    const Nanos way = scheduler_.up_to(3 * kNanosPerMs);
    scheduler_.at(scheduler_.now() + pause + way, [this, number] {
      const Link& link = links_.at(number);
      GroupHost* const caller = at_end(number, 1);
      GroupHost* const called = at_end(number, 0);
      if (!link.is_open || caller == nullptr) return;
      const bool is_reachable = called != nullptr && !called->is_paused() &&
                                !is_cut(link.ends[0], link.ends[1]) &&
                                !closed_.contains(link.ends[0]);
      caller->arrive({.link = number, .is_reachable = is_reachable});
      if (!is_reachable) call_back(number, kBetweenCalls);
    });
  }

  // The host there, if it is still the process of this link.
  GroupHost* at_end(std::uint64_t number, int end) const {
    const Link& link = links_.at(number);
    GroupHost& host = *hosts_[link.ends[end]];
    return host.lives() && host.epoch() == link.epochs[end] ? &host : nullptr;
  }

  // Both ends hear of it, at some time.
  void break_link(std::uint64_t number) {
    Link& link = links_.at(number);
    if (!link.is_open) return;
    link.is_open = false;
    for (const int end : {0, 1})
      scheduler_.at(scheduler_.now() + scheduler_.up_to(300 * kNanosPerMs), [this, number, end] {
        if (GroupHost* const host = at_end(number, end))
          host->arrive({.link = number, .is_end = true});
      });
  }

  void break_links_of(std::size_t host) {
    for (const auto& [number, link] : links_)
      if (link.is_open && (link.ends[0] == host || link.ends[1] == host)) break_link(number);
  }

  void send(std::size_t from, std::uint64_t number, Arrival arrival) {
    Link& link = links_.at(number);
    const int end = link.ends[0] == from ? 1 : 0;
    const Nanos way = scheduler_.chance(50) ? scheduler_.up_to(300 * kNanosPerMs)
                                            : scheduler_.up_to(3 * kNanosPerMs);
    link.arrives[end] = std::max(link.arrives[end] + 1, scheduler_.now() + way);
    scheduler_.at(link.arrives[end], [this, number, end, arrival = std::move(arrival)] {
      const Link& used = links_.at(number);
      if (!used.is_open) return;
      if (is_cut(used.ends[0], used.ends[1])) return break_link(number);
      if (GroupHost* const host = at_end(number, end)) host->arrive(arrival);
    });
  }

  void copy(std::size_t from, std::uint64_t number) {
    if (!copying_.insert(number).second) return;
    const Link link = links_.at(number);
    scheduler_.at(scheduler_.now() + scheduler_.up_to(kNanosPerSecond), [this, from, number, link] {
      GroupHost& target = *hosts_[link.ends[0]];
      GroupHost& source = *hosts_[from];
      if (!source.lives() || source.epoch() != link.epochs[1]) return;
      if (!target.lives() || target.epoch() != link.epochs[0]) return;
      if (target.membership()->role() == server::Membership::Role::kLeading) return;
      if (target.membership()->is_in_sync() && source.membership()->is_in_sync() &&
          is_in_set(target))
        complain("a replica that is in sync is emptied");
      break_link(number);
      target.replace_engine(source);
    });
  }

  bool is_in_set(const GroupHost& host) const {
    const auto& stored = kept_ ? kept_ : etcd_.stored().configuration;
    return stored && std::ranges::any_of(stored->members, [&](const server::Member& member) {
             return member.epoch == host.epoch();
           });
  }

  // ---- clients

  // A write that was answered, or READ by a GET that was believed, is the only one at its place,
  // and stays.
  void observe(const Write& write, std::uint64_t least) {
    if (write.ordinal < least) return complain("a GET answers what was replaced before it began");
    scheduler_.trace(write.ordinal, write.id);
    if (write.ordinal == 0) return;
    const auto [at, is_new] = answered_.emplace(write.ordinal, write.id);
    if (!is_new && at->second != write.id) complain("two answers exclude each other");
    settled_ = std::max(settled_, write.ordinal);
  }

  void write() {
    scheduler_.sleep(scheduler_.up_to(30 * kNanosPerMs));
    GroupHost& host = *hosts_[scheduler_.random().below(kHosts)];
    const std::uint64_t id = ++last_id_;
    const auto version = host.write(id);
    if (!version) return;
    const std::uint64_t epoch = host.epoch();
    const std::uint64_t ordinal = host.last_ordinal();
    for (const Nanos until = scheduler_.now() + kLongestCall; scheduler_.now() < until;) {
      if (host.has_answered(*version, epoch)) {
        ++verdict_.writes;
        return observe({.ordinal = ordinal, .id = id}, 0);
      }
      scheduler_.sleep(kNanosPerMs);
      if (scheduler_.chance(100)) return;  // goes elsewhere
    }
  }

  void read() {
    scheduler_.sleep(scheduler_.up_to(5 * kNanosPerMs));
    const Nanos began = scheduler_.now();
    const std::uint64_t least = settled_;
    if (scheduler_.chance(4)) scheduler_.sleep(scheduler_.up_to(50 * kNanosPerMs));
    const auto seen = hosts_[scheduler_.random().below(kHosts)]->read(began);
    if (!seen || !seen->covers) return;
    ++verdict_.gets;
    observe(seen->newest, least);
  }

  // Keys with a time to live, and questions whether they have expired, which primaries answer
  // without an entry in the log.
  void expire() {
    scheduler_.sleep(scheduler_.up_to(20 * kNanosPerMs));
    const GroupHost& host = *hosts_[scheduler_.random().below(kHosts)];
    const Nanos began = scheduler_.now();
    const std::uint64_t least = latest_ms_;
    if (scheduler_.chance(4)) scheduler_.sleep(scheduler_.up_to(50 * kNanosPerMs));
    const std::uint64_t time = host.judges_by();
    const std::uint64_t begins = host.begins_by();
    const auto seen = host.read(began);
    if (time == 0 || !seen || !seen->covers) return;
    // The time that began again may reach clients by a later primary first: the one with which it
    // began has told that one, and then nobody asked it.
    if (host.time_began_with() != time_began_with_) {
      time_began_with_ = host.time_began_with();
      brief_.clear();
    } else if (time < least) {
      complain("what has expired exists again");
    }
    latest_ms_ = time;
    // A primary that was paused sees answers from before the pause first, and judges by what they
    // say until the next ones.
    const Nanos late = host.paused_until() > began - kLate ? kLate + kLongestFault : kLate;
    for (const Brief& key : brief_) {
      const Nanos lived = scheduler_.now() - key.put_at;
      if (time >= key.expiry_ms && lived < key.lives - (key.lives / 50) - kNanosPerMs)
        complain("a key ends before its time");
      if (time < key.expiry_ms && began - key.put_at > key.lives + (key.lives / 50) + late)
        complain("a key lives too long");
    }
    verdict_.expired +=
        std::erase_if(brief_, [&](const Brief& key) { return time >= key.expiry_ms; });
    const Nanos lives = scheduler_.up_to(5 * kNanosPerSecond);
    brief_.push_back({.expiry_ms = begins + static_cast<std::uint64_t>(lives / kNanosPerMs),
                      .put_at = scheduler_.now(),
                      .lives = lives});
  }

  void revoke() {
    scheduler_.sleep(scheduler_.up_to(kNanosPerSecond));
    GroupHost& host = *hosts_[scheduler_.random().below(kHosts)];
    const RevokedSecret secret{.user = fmt::format("user{}", ++last_user_)};
    if (!host.revoke(secret)) return;
    const std::uint64_t epoch = host.epoch();
    for (const Nanos until = scheduler_.now() + kLongestCall; scheduler_.now() < until;) {
      if (host.has_answered(secret, epoch)) {
        ++verdict_.revoked;
        return revoked_.push_back(secret);
      }
      scheduler_.sleep(5 * kNanosPerMs);
    }
  }

  // Whatever becomes the primary has read what etcd had then.
  void look_for_revoked(const server::GroupConfiguration& stored) {
    for (const RevokedSecret& secret : revoked_) {
      if (!stored.has_revoked(secret)) complain("a secret that was revoked is not any more");
      for (const auto& host : hosts_) {
        const server::Member* const primary = stored.find(stored.primary);
        if (!host->serves() || primary == nullptr || primary->epoch != host->epoch()) continue;
        if (!host->membership()->configuration()->has_revoked(secret))
          complain("a primary does not know of a secret that was revoked before");
      }
    }
  }

  // Looks at the processes that are in sync now and were not before.
  void look_for_unreached(const server::GroupConfiguration& stored) {
    std::set<std::uint64_t> now;
    for (const server::Member& member : stored.members) {
      if (!member.in_sync()) continue;
      now.insert(member.epoch);
      if (member.name == stored.primary || members_.contains(member.epoch)) continue;
      const auto closed = closed_.find(static_cast<std::size_t>(member.name.back() - '0'));
      const bool was_open =
          closed == closed_.end() || std::ranges::any_of(links_, [&](const auto& each) {
            return each.second.epochs[0] == member.epoch && each.second.opened_at <= closed->second;
          });
      if (!was_open) complain("a replica is in sync that no other one can connect to");
    }
    members_ = std::move(now);
  }

  // ---- faults

  void disturb() {
    if (healed_) return scheduler_.sleep(kNanosPerSecond);
    scheduler_.sleep(scheduler_.up_to(2 * kNanosPerSecond));
    if (healed_) return;
    const std::size_t one = scheduler_.random().below(kHosts);
    const std::size_t other = (one + 1 + scheduler_.random().below(kHosts - 1)) % kHosts;
    const Nanos time = scheduler_.up_to(kLongestFault);
    GroupHost& host = *hosts_[one];
    switch (scheduler_.random().below(11)) {
      case 0:
      case 1:
        return host.pause(scheduler_.now() + time);
      case 2: {
        if (!host.lives() || plan_.answers_from_memory()) return;
        host.kill();
        return scheduler_.at(scheduler_.now() + time, [&host] {
          if (!host.lives()) host.start();
        });
      }
      case 3: {
        const std::pair pair{std::min(one, other), std::max(one, other)};
        cut_.insert(pair);
        return scheduler_.at(scheduler_.now() + time, [this, pair] { cut_.erase(pair); });
      }
      case 4:
      case 5:
        for (auto& each : hosts_)
          each->hand_over();  // the primary does
        return;
      case 6: {
        const auto by_ms = static_cast<std::int64_t>(draw({2'000, 60'000, 86'400'000}));
        return host.shift_wall(scheduler_.chance(2) ? by_ms : -by_ms, scheduler_.now() + time);
      }
      case 7:
        etcd_.faults().refuses = true;
        return scheduler_.at(scheduler_.now() + time, [this] { etcd_.faults().refuses = false; });
      case 8:
        return lose_etcd(time);
      case 9:  // it is left out meanwhile, and connects again before it is open
        closed_.emplace(one, scheduler_.now());
        host.pause(scheduler_.now() + time / 2);
        return scheduler_.at(scheduler_.now() + time, [this, one] { closed_.erase(one); });
      default:
        etcd_.set_reachable(one, false);
        scheduler_.at(scheduler_.now() + time, [this, one] { etcd_.set_reachable(one, true); });
    }
  }

  // etcd comes back empty, or with another group of the name, and a person puts the configuration
  // back.
  void lose_etcd(Nanos time) {
    const bool all_belong =
        std::ranges::all_of(hosts_, [](const auto& host) { return host->belongs_to_group(); });
    if (kept_ || !all_belong) return;
    kept_ = etcd_.stored().configuration;
    etcd_.lose_data();
    if (scheduler_.chance(2)) {
      server::GroupConfiguration other = *kept_;
      other.group = ~kept_->group;
      etcd_.put_back(other);
    }
    scheduler_.at(scheduler_.now() + time, [this] { put_back(); });
  }
  void put_back() {
    if (kept_) etcd_.put_back(*std::exchange(kept_, std::nullopt));
  }

  void watch() {
    scheduler_.sleep(20 * kNanosPerMs);
    const auto& stored = etcd_.stored().configuration;
    if (!stored || kept_) return;
    look_for_revoked(*stored);
    look_for_unreached(*stored);
    if (stored->term != term_) {
      term_ = stored->term;
      ++verdict_.terms;
    }
    if (stored->in_sync_count() > in_sync_) ++verdict_.joins;
    in_sync_ = stored->in_sync_count();
  }

  const GroupPlan plan_;
  rdma::sim::Scheduler scheduler_;
  Etcd etcd_;
  std::map<std::uint64_t, Link> links_;
  std::uint64_t last_link_ = 0;
  std::set<std::uint64_t> copying_;  // links
  std::set<std::pair<std::size_t, std::size_t>> cut_;
  std::map<std::size_t, Nanos> closed_;  // hosts to which nobody can connect, since when
  std::set<std::uint64_t> members_;      // epochs of those in sync
  std::vector<std::unique_ptr<GroupHost>> hosts_;
  std::map<std::uint64_t, std::uint64_t> answered_;  // by ordinal: the write's id
  std::uint64_t settled_ = 0;
  std::uint64_t last_id_ = 0;
  std::vector<Brief> brief_;
  std::uint64_t latest_ms_ = 0;         // that anybody was told
  std::uint64_t time_began_with_ = 0;   // of the primary that was asked last
  std::vector<RevokedSecret> revoked_;  // answered
  std::uint64_t last_user_ = 0;
  std::uint32_t term_ = 0;
  std::size_t in_sync_ = 0;
  std::optional<server::GroupConfiguration> kept_{};  // etcd has lost it
  bool healed_ = false;
  bool over_ = false;
  GroupVerdict verdict_;
};

}  // namespace

GroupVerdict run_group(const GroupPlan& plan) {
  return Run(plan).run();
}

}  // namespace rkv::sim
