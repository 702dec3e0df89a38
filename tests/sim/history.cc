#include "tests/sim/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "common/bytes.h"
#include "tests/history/checker.h"

namespace rkv::sim {

namespace {

using Kind = Op::Kind;
using Outcome = Op::Outcome;

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
constexpr std::size_t kTagBytes = 7;  // "000042:"

bool is_write(const Op& op) {
  return op.kind == Kind::kPut || op.kind == Kind::kRemove || op.kind == Kind::kAdd ||
         op.kind == Kind::kSwap;
}
// An answer about the key's state that changes nothing.
bool is_read(const Op& op) {
  if (is_write(op)) return op.outcome == Outcome::kMissing || op.outcome == Outcome::kConflict;
  return op.kind == Kind::kGet && (op.outcome == Outcome::kDone || op.outcome == Outcome::kMissing);
}
// The checker's name for the value of put `number`.
std::string tag_of(std::size_t number) {
  return fmt::format("#{}", number);
}
// A write with a known place in the commit order.
bool is_placed(const Op& op) {
  return is_write(op) && op.version.bits != 0;
}

}  // namespace

std::size_t History::begin(Op op) {
  ops_.push_back(op);
  return ops_.size() - 1;
}

std::string History::value_of(std::size_t number, std::size_t length) {
  const std::string tag = fmt::format("{:06}:", number);
  std::string value;
  value.reserve(length + tag.size());
  while (value.size() < length)
    value += tag;
  value.resize(std::max(length, kTagBytes));
  return value;
}

std::optional<std::size_t> History::writer_of(std::string_view value) const {
  std::size_t number = 0;
  if (value.size() < kTagBytes || value[kTagBytes - 1] != ':') return std::nullopt;
  const char* const colon = value.begin() + kTagBytes - 1;
  const auto [end, error] = std::from_chars(value.begin(), colon, number);
  if (error != std::errc{} || end != colon || number >= ops_.size() ||
      ops_[number].kind != Kind::kPut) {
    return std::nullopt;
  }
  return value == value_of(number, ops_[number].length) ? std::optional(number) : std::nullopt;
}

bool History::answered(std::size_t number, std::string_view value, Version version) {
  Op& op = ops_[number];
  op.outcome = Outcome::kDone;
  op.version = version;
  const auto writer = writer_of(value);
  if (!writer || ops_[*writer].key != op.key) {
    note({.what = fmt::format("get #{} was answered with {} bytes that nobody put: {:.40}...",
                              number, value.size(), value),
          .key = op.key});
    op.outcome = Outcome::kFailed;
    op.version = {};
    return false;
  }
  op.writer = *writer;
  return true;
}

void History::answered_number(std::size_t number, std::int64_t sum, Version version) {
  Op& op = ops_[number];
  op.outcome = Outcome::kDone;
  op.version = version;
  op.writer = kNoWriter;
  op.sum = sum;
}

// A version that was seen with a value proves that the put happened, and its place in the order.
void History::learn(std::size_t writer, Version version, std::size_t key) {
  Op& put = ops_[writer];
  const bool refused = put.outcome == Outcome::kConflict || put.outcome == Outcome::kMissing;
  if (put.outcome == Outcome::kFailed || refused) {
    note({.what = fmt::format("put #{} is there although it was refused", writer), .key = key});
  } else if (put.version.bits == 0) {
    put.version = version;
  } else if (put.version != version) {
    note({.what = fmt::format("put #{} has version {} and is seen with version {}", writer,
                              show(put.version), show(version)),
          .key = key});
  }
}

// --------------------------------------------------------------------------------- restarts

std::vector<std::optional<History::OnDisk>> History::content_of(
    const Disk::Records& content, const std::vector<std::string>& keys) {
  std::vector<std::optional<OnDisk>> all(keys.size());
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const auto found = content.find(keys[key]);
    if (found == content.end()) continue;
    all[key] = {
        .version = found->second.version, .expires = found->second.expiry_ms != 0, .number = {}};
    if (found->second.counter) {
      const auto* bytes = reinterpret_cast<const std::byte*>(found->second.value.data());
      all[key]->number = load_le<std::int64_t>(bytes);
      continue;
    }
    const auto writer = writer_of(found->second.value);
    if (!writer || ops_[*writer].key != key) {
      note({.what = "the disk holds a value that nobody put", .key = key});
      continue;
    }
    // Checked at the end of the run: the put may still be under way.
    const std::size_t number = begin({.kind = Kind::kGet, .key = key});
    ops_[number].outcome = Outcome::kFailed;
    ops_[number].writer = *writer;
    ops_[number].version = found->second.version;
  }
  return all;
}

void History::server_starts(std::uint32_t boot, Nanos when, const Disk::Records& content,
                            const std::vector<std::string>& keys) {
  boots_.push_back({.number = boot,
                    .started = when,
                    .ended = kForever,
                    .loaded = content_of(content, keys),
                    .survived = {}});
}

void History::server_ends(Nanos when, End end, const Disk::Records& content,
                          const std::vector<std::string>& keys) {
  Boot& boot = boots_.back();
  boot.ended = when;
  boot.end = end;
  boot.survived = content_of(content, keys);
}

// ----------------------------------------------------------------------------------- checks

const std::optional<History::Violation>& History::check(std::size_t key_count, Nanos expiry_late) {
  for (const Op& op : ops_) {
    if (op.kind == Kind::kGet && op.version.bits != 0 && op.writer < ops_.size()) {
      learn(op.writer, op.version, op.key);
    }
  }
  bound_unknown_writes();
  check_commit_order();
  for (Boot& boot : boots_) {
    if (boot.ended == kForever) continue;
    check_survivors(boot, key_count);
    check_cells(boot, key_count);
  }
  check_flushes();
  for (std::size_t key = 0; key < key_count && !violation_; ++key)
    check_key(key, expiry_late);
  return violation_;
}

// A client that is served again has a new session, and its old session was ended before. So its
// earlier requests have happened by then or never will. An atomic has no session.
void History::bound_unknown_writes() {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    Op& op = ops_[i];
    if (!is_write(op) || op.outcome != Outcome::kUnknown) continue;
    Nanos bound = in_cell(op.key) ? alive_until(op.returned) : kForever;
    for (std::size_t j = i + 1; j < ops_.size() && !in_cell(op.key); ++j) {
      const Op& later = ops_[j];
      const bool served = later.outcome == Outcome::kDone || is_read(later);
      if (later.client != op.client || later.called < op.returned || !served) continue;
      bound = std::min(bound, later.returned);
    }
    op.returned = bound;
  }
}

void History::check_commit_order() {
  for (std::size_t a = 0; a < ops_.size(); ++a) {
    const Op& first = ops_[a];
    if (!is_placed(first)) continue;
    for (std::size_t b = 0; b < ops_.size(); ++b) {
      const Op& second = ops_[b];
      const bool placed =
          is_placed(second) || (second.kind == Kind::kFlush && second.outcome == Outcome::kDone);
      if (a == b || !placed) continue;
      const bool flush = second.kind == Kind::kFlush;
      // A flush covers the writes acknowledged before it. check_flushes() checks for losses by a
      // crash in between.
      const bool comparable = !flush || first.version.boot() == second.version.boot();
      const bool ordered = flush ? first.version <= second.version : first.version < second.version;
      if (first.returned < second.called && comparable && !ordered) {
        note({.what = fmt::format("#{} ({}) was answered before #{} ({}) was called, and is "
                                  "numbered after it",
                                  a, show(first.version), b, show(second.version)),
              .key = first.key});
      }
      if (is_placed(second) && first.version == second.version) {
        note({.what = fmt::format("#{} and #{} have one version", a, b), .key = first.key});
      }
    }
  }
}

// By a removal without an answer, or by expiry.
bool History::maybe_removed(std::size_t key, const Boot& boot) const {
  return std::ranges::any_of(ops_, [&](const Op& op) {
    const bool removes = op.kind == Kind::kRemove && op.outcome == Outcome::kUnknown;
    return op.key == key && op.called <= boot.ended && (removes || op.ttl_ms != 0);
  });
}

// By an addition without an answer, whose version is unknown.
bool History::maybe_counted(std::size_t key, const Boot& boot) const {
  return std::ranges::any_of(ops_, [&](const Op& op) {
    return op.kind == Kind::kAdd && op.key == key && op.outcome == Outcome::kUnknown &&
           op.called <= boot.ended;
  });
}

// True if the operation's answer promised that everything up to its version survives this kind of
// end.
bool History::is_promised(const Op& op, End end) {
  if (op.outcome == Outcome::kDone) {
    if (op.kind == Kind::kFlush || op.durability == Durability::kSync) return true;
    if (op.durability == Durability::kWal && end == End::kProcess) return true;
  }
  return end == End::kStopped && is_placed(op);
}

// The disk must hold the state after some write of this boot: the same write for all keys, and none
// before a promised version.
void History::check_survivors(Boot& boot, std::size_t key_count) {
  Version promised{};
  std::vector<Version> ends;  // the versions at which the prefix may end
  for (const Op& op : ops_) {
    if (op.version.boot() != boot.number) continue;
    if (is_placed(op)) ends.push_back(op.version);
    if (is_promised(op, boot.end)) promised = std::max(promised, op.version);
  }
  std::erase_if(ends, [&](Version end) { return end < promised; });
  ends.push_back(promised);
  std::ranges::sort(ends);
  std::vector<Timeline> timelines;
  for (std::size_t key = 0; key < key_count; ++key)
    timelines.push_back(timeline_of(boot, key));
  bool any = false;
  for (const Version end : ends) {
    bool fits = true;
    for (std::size_t key = 0; key < key_count && fits; ++key)
      fits = survived(boot, key, timelines[key], end);
    if (fits) boot.through = end;
    any = any || fits;
  }
  if (any) return;
  for (std::size_t key = 0; key < key_count; ++key) {
    if (survived(boot, key, timelines[key], ends.front()) && key + 1 != key_count) continue;
    return note({.what = fmt::format("what survived boot {} is not a prefix of its writes that "
                                     "contains everything through {}",
                                     boot.number, show(promised)),
                 .key = key});
  }
}

// True if the client of both was informed of a loss between them.
bool History::is_told(const Op& write, const Op& flush) const {
  return std::ranges::any_of(ops_, [&](const Op& op) {
    return op.outcome == Outcome::kStale && op.client == flush.client &&
           op.called >= write.returned && op.returned <= flush.called;
  });
}

void History::check_flushes() {
  for (std::size_t f = 0; f < ops_.size(); ++f) {
    const Op& flush = ops_[f];
    const bool stale = flush.outcome == Outcome::kStale;
    if (flush.kind != Kind::kFlush || (!stale && flush.outcome != Outcome::kDone)) continue;
    bool restarted = false;
    for (std::size_t w = 0; w < ops_.size(); ++w) {
      const Op& write = ops_[w];
      if (!is_write(write) || write.outcome != Outcome::kDone || write.client != flush.client ||
          write.returned > flush.called) {
        continue;
      }
      const bool counted = in_cell(write.key);
      if (counted && may_be_taken_back(write, flush)) restarted = true;
      const Boot* const boot = counted ? taken_back(write, flush) : boot_of(write.version);
      if (boot == nullptr || boot->ended > flush.returned) continue;
      restarted = true;
      const bool kept = !counted && write.version <= boot->through;
      if (stale || kept || is_told(write, flush)) continue;
      note({.what = fmt::format("flush #{} succeeded, though #{} ({}), acknowledged to its client "
                                "before, is lost",
                                f, w, counted ? "of a cell" : show(write.version)),
            .key = write.key});
    }
    if (stale && !restarted) {
      note({.what = fmt::format("flush #{} reported an impossible loss", f), .key = {}});
    }
  }
}

// The states of a key in a boot, each with the version at which it begins.
History::Timeline History::timeline_of(const Boot& boot, std::size_t key) const {
  const auto& loaded = boot.loaded[key];
  Timeline timeline = {{Version{}, loaded ? std::optional(loaded->version) : std::nullopt}};
  for (const Op& op : ops_) {
    if (!is_placed(op) || op.key != key || op.version.boot() != boot.number) continue;
    timeline.emplace_back(op.version,
                          op.kind != Kind::kRemove ? std::optional(op.version) : std::nullopt);
  }
  std::ranges::sort(timeline, {}, [](const auto& state) { return state.first; });
  return timeline;
}

// True if the key has its state of right after `end`.
bool History::survived(const Boot& boot, std::size_t key, const Timeline& timeline,
                       Version end) const {
  if (in_cell(key)) return true;
  const auto later =
      std::ranges::upper_bound(timeline, end, {}, [](const auto& state) { return state.first; });
  const auto& survivor = boot.survived[key];
  const auto version = survivor ? std::optional(survivor->version) : std::nullopt;
  return version == std::prev(later)->second || (!survivor && maybe_removed(key, boot)) ||
         maybe_counted(key, boot);
}

// ------------------------------------------------------------------------------ one key's order

const History::Boot* History::boot_of(Version version) const {
  const auto found = std::ranges::find(boots_, version.boot(), &Boot::number);
  return found == boots_.end() ? nullptr : &*found;
}

// A text that a server loaded: its version names the put that wrote it.
std::string History::text_of(std::size_t key, Version version) const {
  const auto put = std::ranges::find_if(ops_, [&](const Op& op) {
    return op.kind == Kind::kPut && op.key == key && op.version == version;
  });
  return put == ops_.end() ? "?" : tag_of(static_cast<std::size_t>(put - ops_.begin()));
}

// A start of a server as an operation on the key, between two servers: no client is answered then.
history::Operation History::start_of(std::size_t boot, std::size_t key) const {
  const Boot& now = boots_[boot];
  const Nanos after = boot == 0 ? 0 : boots_[boot - 1].ended;
  history::Operation op{.process = -1 - static_cast<int>(boot),
                        .call = {.f = history::Function::kRestart},
                        .answer = {.outcome = history::Outcome::kOk},
                        .invoked = std::min(after + 1, now.started),
                        .returned = now.started};
  if (now.loaded[key]) {
    const OnDisk& found = *now.loaded[key];
    op.answer.content = found.number ? history::Content::of(*found.number)
                                     : history::Content::of(text_of(key, found.version));
    op.answer.version = found.version.bits;
    op.answer.expires_at_ms = found.expires ? 1 : 0;
  }
  return op;
}

history::Call History::call_of(std::size_t number) const {
  using history::Function;
  const Op& op = ops_[number];
  history::Call call;
  switch (op.kind) {
    case Kind::kPut:
      call.f = op.condition == Op::Condition::kNone       ? Function::kPut
               : op.condition == Op::Condition::kIfAbsent ? Function::kPutIfAbsent
                                                          : Function::kPutIfVersion;
      call.text = tag_of(number);
      call.if_version = op.expected.bits;
      call.ttl = std::chrono::milliseconds(life_ms_of(op));
      break;
    case Kind::kRemove:
      call.f = Function::kRemove;
      break;
    case Kind::kAdd:
      call.f = Function::kIncr;
      call.number = op.number;
      break;
    case Kind::kSwap:
      call.f = Function::kCounterCas;
      call.number = op.number;
      call.expected = op.if_number;
      break;
    case Kind::kOpen:
    case Kind::kGet:
    case Kind::kFlush:
      call.f = Function::kGet;
  }
  return call;
}

// An operation in the checker's form; empty if it carries no information.
std::optional<history::Operation> History::operation(std::size_t number) const {
  const Op& op = ops_[number];
  if (in_cell(op.key)) return cell_operation(number);
  history::Operation out{.process = static_cast<int>(number),
                         .call = call_of(number),
                         .invoked = op.called,
                         .returned = op.returned,
                         .until = op.returned};
  if (is_placed(op)) {
    // It happened, while its server lived, whatever the client's answer was.
    const Boot* const boot = boot_of(op.version);
    if (boot == nullptr) return std::nullopt;  // present from the start: the server loads it
    out.invoked = std::max(op.called, boot->started);
    out.returned = std::min(op.returned, boot->ended);
    out.answer = {.outcome = history::Outcome::kOk, .version = op.version.bits};
    if (op.kind == Kind::kAdd) out.answer.content = history::Content::of(op.sum);
    return out;
  }
  if (is_write(op) && op.outcome == Outcome::kUnknown) return out;
  if (!is_read(op)) return std::nullopt;
  out.answer.outcome = history::Outcome::kOk;
  if (is_write(op)) {
    const bool missing = op.outcome == Outcome::kMissing;
    out.answer = {.outcome = history::Outcome::kFail,
                  .error = missing ? Code::kNotFound : Code::kConflict};
  } else if (op.outcome == Outcome::kDone) {
    out.answer.content = op.writer == kNoWriter ? history::Content::of(op.sum)
                                                : history::Content::of(tag_of(op.writer));
    out.answer.version = op.version.bits;
    out.answer.expires_at_ms = op.expires ? 1 : 0;
  }
  return out;
}

void History::check_key(std::size_t key, Nanos expiry_late) {
  history::History told;
  for (std::size_t boot = 0; boot < boots_.size(); ++boot)
    told.push_back(start_of(boot, key));
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].key != key || ops_[i].kind == Kind::kFlush) continue;
    const auto op = operation(i);
    if (!op) continue;
    if (op->end() < op->invoked) {
      return note({.what = fmt::format("#{} was carried out outside of its call", i), .key = key});
    }
    told.push_back(*op);
  }
  if (in_cell(key)) push_survivors(key, told);
  if (told.size() == boots_.size()) return;  // no operation on this key
  const auto violation = history::check(told, {.search = {.expiry_late = expiry_late}});
  if (!violation) return;
  note({.what = fmt::format("{}\n(a process is the number of an operation)", violation->text),
        .key = key});
}

}  // namespace rkv::sim
