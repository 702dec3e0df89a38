// The entries of a commit log as the bytes of a block (EntryBlock). Little-endian, one after the
// other:
//
//   kind 1 | has a tag 1 | length of key 2 | length of value 4 | version 8 | traits 8
//   | tag 24, if it has one | key | value
//
// kind and traits: as CommitLog::Kind and record_traits(). A removal has no value, and traits 0.
// The tag (WriteTag) fits the kind.
//
// Invariants:
//  ENTRY-1  first_entry() accepts what append_entry() made, within the limits of keys and values,
//      and nothing else. Bytes from a peer are refused, never asserted.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "server/group/rules/replica_log.h"
#include "server/log/commit_log.h"

namespace rkv::server {

inline constexpr std::size_t kEntryHeadBytes = 24;

std::size_t entry_bytes(const CommitLog::Entry& entry);
void append_entry(std::vector<std::byte>& block, const CommitLog::Entry& entry);

// Decodes the entry at the beginning of `bytes`; nullopt: there is no valid one. `sequence` is not
// set. The spans point into the bytes.
std::optional<CommitLog::Entry> first_entry(Bytes bytes);
// Whether the block consists of entries whose versions rise from behind its `previous` to its
// `last`.
bool is_valid_block(const EntryBlock& block);

}  // namespace rkv::server
