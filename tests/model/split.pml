/* A segment is split under the eyes of a reader with a directory of any age.
 *
 * Mirrors: server/DESIGN.md "Writing" and "Whereabouts"; RecordStore::put and remove (server/store/record_store.cc),
 * Index::publish, insert_guest, erase_guest, fill (server/index/index.cc) and the split; the reader is
 * client/get/get.cc from read_home() to on_recheck().
 *
 * Modelled: one key; its home group and the neighbour, in the old segment and in the new one; each
 * group in words (checksum, header, slot of the key) that are stored one by one and READ one by one
 * in any order; whether the key leaves or stays, where it is (home, guest, stash, nowhere), where
 * the split puts it. A mutator with the pair's lock: update in place, moving update, delete, insert
 * to any place, guest comes home, out of the stash; blocks are reused at once, also by a foreign
 * key. The reader tries any block first (a cache of any age, and the slots of groups that do not
 * verify), and takes the segment from anywhere (the directory is a hint).
 *
 * Left out, and why that is sound:
 *   - other keys: they share nothing with this key but flags, counters and blocks. `others` keeps
 *     the overflow flag set for their sake; they may leave in the split. Fingerprints that coincide
 *     are in pair.pml; here a block that went to another key does the same.
 *   - records are READ at one instant: a record that verifies is witnessed by its state word
 *     (record.pml); one that does not makes the GET start again, which it may do at any time here.
 *   - depth and prefix are one bit, `covers`: for one key that is all they say. The header words of
 *     two segments are never compared with each other.
 *   - a second split: the segment that covers the key is then the "old" one again.
 *   - a bound on the tries: the reader repeats without end; that it asks the server in the end
 *     answers under the lock. That a fresh directory leads to a group that covers is asserted.
 *
 * PAIRS: pair by pair instead of the whole segment: the directory leads to the new segment from the
 * start, its groups say `forward` until their pair is moved under the pair's lock.
 * WORDS: groups word by word; without it a group is stored and READ in one step, which group.pml
 * proves to be the same.
 *
 * accept: the whole segment is split under one lock
 * accept PAIRS: the segment is split pair by pair
 * accept-long OPERATIONS=2: two operations
 * accept-long OPERATIONS=2 PAIRS: two operations
 * accept-long WORDS: group READs torn in any order
 * accept-long NO_NEW_COUNTER: a reader does not need counter = old + 1 in a new group
 * accept-long NO_STAMP_COUNTER: nor counter + 1 in the stamp, if it compares whole header words
 * reject NO_STAMP_COUNTER COUNTERS_COMPARED: a stamp raises the counter, for who compares it alone
 * reject NO_CHECK_AFTER_LOCK: with the lock in hand, look whether the group still covers the key
 * reject MUTATED_BEFORE_STAMP: no mutation in the new groups before the old ones are stamped
 * reject BORN_EMPTY: a new group verifies only with all its slots
 * reject NO_OVERFLOW_INHERITED: a new home group has overflow if a guest of it is next door
 * reject NO_SPILLED_INHERITED: a new home group inherits spilled
 * reject TRIM_BEFORE_STAMP: stamp and trim are one publication
 * reject NO_OVERFLOW_KEPT: the stamp keeps overflow while a guest is left
 * reject PULLED_HOME: a key that stays keeps its slot
 * reject NO_HOME_COVERS: the reader looks whether home covers the key
 * reject NO_NEIGHBOUR_COVERS: and whether the neighbour does
 * reject DIRECTORY_BEFORE_BUILD: bound of READs: the directory leads to groups that are there
 * reject DIRECTORY_AFTER_STAMP: bound of READs: the directory knows before a group turns away
 * reject PAIRS NO_FORWARD: a group that says forward proves no miss
 * reject PAIRS NO_NEIGHBOUR_FORWARD: nor does a neighbour that says so
 */

#ifndef OPERATIONS
#define OPERATIONS 1
#endif
#define BLOCKS 2
#include "monitor.pml"

/* Groups: 2 x segment + (0 home, 1 neighbour). Header: counter, depth raised,
 * covers, overflow, spilled, forward. */
#define HOME(segment) (2 * (segment))
#define NEIGHBOUR(segment) (2 * (segment) + 1)
#define COUNTER_ONE 32
#define COUNTER (15 * COUNTER_ONE)
#define DEPTH 16
#define COVERS 8
#define OVERFLOW 4
#define SPILLED 2
#define FORWARD 1
#define MAX_HEADER 511
#define CHECKSUM(h, s) (1 + (h) * 4 + (s))

short checksum[4]; /* 0: never written, verifies as nothing */
short header[4];
byte slot[4]; /* block, 0: none */

#define UNREADABLE 0 /* nothing verifies: being written, or a foreign key's business */
#define PREPARED 1
#define LIVE 2
#define SUPERSEDED 3
#define FOREIGN 4 /* verifies, as another key */
byte state[BLOCKS + 1];
byte value[BLOCKS + 1];

/* What the server knows. */
#define NOWHERE 0
#define AT_HOME 1
#define GUEST 2
#define STASHED 3
byte where, block, route;
bool locked, others, leaves;
byte directory; /* what clients READ: 0 old segment, 1 new */

/* ---------------------------------------------------------------- rules that can be left out */

#ifdef NO_STAMP_COUNTER
#define COUNTS(set) (COUNTER_ONE * !((set) & DEPTH))
#else
#define COUNTS(set) COUNTER_ONE
#endif
#ifdef NO_NEW_COUNTER
#define NEW_COUNTER(old) 0
#else
#define NEW_COUNTER(old) ((old) + COUNTER_ONE)
#endif
#ifdef NO_OVERFLOW_INHERITED
#define NEW_OVERFLOW 0
#else
#define NEW_OVERFLOW (OVERFLOW * (stays_others || where == GUEST))
#endif
#ifdef NO_SPILLED_INHERITED
#define NEW_SPILLED 0
#else
#define NEW_SPILLED (SPILLED * (where == STASHED))
#endif
#ifdef NO_OVERFLOW_KEPT
#define NO_GUEST_LEFT (!stays_others)
#else
#define NO_GUEST_LEFT (!stays_others && where != GUEST)
#endif
#ifdef PULLED_HOME
#define KEPT(g) (((g) == 0 && where == GUEST) * block + ((g) == 0 && where != GUEST) * slot[g])
#else
#define KEPT(g) slot[g]
#endif
#ifdef NO_HOME_COVERS
#define HOME_COVERS true
#else
#define HOME_COVERS (h & COVERS)
#endif
#ifdef NO_NEIGHBOUR_COVERS
#define NEIGHBOUR_COVERS true
#else
#define NEIGHBOUR_COVERS (h & COVERS)
#endif
#ifdef NO_FORWARD
#define FORWARDED false
#else
#define FORWARDED (h & FORWARD)
#endif
#ifdef NO_NEIGHBOUR_FORWARD
#define NEIGHBOUR_FORWARDED false
#else
#define NEIGHBOUR_FORWARDED (h & FORWARD)
#endif
#ifdef COUNTERS_COMPARED
#define UNCHANGED(before) (VERIFIES && (h & COUNTER) == (before & COUNTER))
#else
#define UNCHANGED(before) (VERIFIES && h == before)
#endif

/* ------------------------------------------------------------------ publications of a group */

/* Whether a group is stored and READ word by word, or in one step. */
#ifdef WORDS
#define STEP(statements) statements
#else
#define STEP(statements) atomic { statements }
#endif

inline publish(g, new_slot, set, clear) {
  STEP(
    slot[g] = new_slot;
    assert(header[g] <= MAX_HEADER - COUNTER_ONE);
    header[g] = ((header[g] + COUNTS(set)) | (set)) & (MAX_HEADER - (clear));
    checksum[g] = CHECKSUM(header[g], slot[g])
  )
}

/* The flag that sends readers next door goes with the last guest. */
inline clear_overflow(segment) {
  if
  :: !others -> publish(HOME(segment), slot[HOME(segment)], 0, OVERFLOW)
  :: else
  fi
}

inline insert_at(segment, place, b) {
  if
  :: place == AT_HOME -> publish(HOME(segment), b, 0, 0)
  :: place == GUEST ->
     publish(HOME(segment), slot[HOME(segment)], OVERFLOW, 0);
     publish(NEIGHBOUR(segment), b, 0, 0)
  :: else -> publish(HOME(segment), slot[HOME(segment)], SPILLED, 0)
  fi
}

/* -------------------------------------------------------------------------------- the mutator */

inline take_block(b) {
  if
  :: block != 1 -> b = 1
  :: block != 2 -> b = 2
  fi
}

inline free_block(b) {
  if
  :: skip /* stays as it is for a while */
  :: state[b] = FOREIGN
  fi
}

inline lock_pair() {
  do
  :: segment = route;
     atomic { !locked -> locked = true }
#ifdef NO_CHECK_AFTER_LOCK
     break
#else
     if
     :: (header[HOME(segment)] & COVERS) && !(header[HOME(segment)] & FORWARD) -> break
     :: else -> locked = false
     fi
#endif
  od
}

inline unlock_pair() {
  atomic { acknowledge(); locked = false }
}

inline update_in_place() {
  begin_operation(1);
  state[block] = UNREADABLE;
  atomic { state[block] = LIVE; value[block] = begun }
  unlock_pair()
}

inline update_moving() {
  begin_operation(1);
  d_step { state[fresh] = PREPARED; value[fresh] = begun }
  state[block] = SUPERSEDED;
  if
  :: where == AT_HOME -> publish(HOME(segment), fresh, 0, 0)
  :: where == GUEST -> publish(NEIGHBOUR(segment), fresh, 0, 0)
  :: else
  fi;
  state[fresh] = LIVE;
  d_step { old = block; block = fresh }
  unlock_pair();
  free_block(old)
}

inline delete() {
  begin_operation(0);
  state[block] = SUPERSEDED;
  if
  :: where == AT_HOME -> publish(HOME(segment), 0, 0, 0)
  :: where == GUEST ->
     publish(NEIGHBOUR(segment), 0, 0, 0);
     clear_overflow(segment)
  :: else -> publish(HOME(segment), slot[HOME(segment)], 0, SPILLED)
  fi;
  d_step { old = block; block = 0; where = NOWHERE }
  unlock_pair();
  free_block(old)
}

inline insert() {
  begin_operation(1);
  d_step { state[fresh] = PREPARED; value[fresh] = begun }
  if
  :: where = AT_HOME
  :: where = GUEST
  :: where = STASHED
  fi;
  insert_at(segment, where, fresh);
  state[fresh] = LIVE;
  block = fresh;
  unlock_pair()
}

inline come_home(segment) {
  publish(HOME(segment), block, 0, 0);
  publish(NEIGHBOUR(segment), 0, 0, 0);
  clear_overflow(segment);
  where = AT_HOME
}

inline leave_stash(segment) {
  if
  :: where = AT_HOME
  :: where = GUEST
  fi;
  insert_at(segment, where, block);
  publish(HOME(segment), slot[HOME(segment)], 0, SPILLED)
}

proctype mutator() {
  byte segment, fresh, old;
  bool moved;
  do
  :: begun < OPERATIONS ->
     lock_pair();
     if
     :: where != NOWHERE -> update_in_place()
     :: where != NOWHERE -> atomic { take_block(fresh) } update_moving()
     :: where != NOWHERE -> delete()
     :: where == NOWHERE -> atomic { take_block(fresh) } insert()
     :: where == GUEST && !moved -> moved = true; come_home(segment); locked = false
     :: where == STASHED && !moved -> moved = true; leave_stash(segment); locked = false
     fi;
     d_step { segment = 0; fresh = 0; old = 0 }
  :: break
  od
}

/* --------------------------------------------------------------------------------- the split */

/* A new group: its words, the checksum last. Before it nothing verifies. */
inline build(g, b, flags) {
#ifdef BORN_EMPTY
  STEP(
    header[g] = DEPTH | (flags);
    checksum[g] = CHECKSUM(header[g], slot[g])
  );
#endif
  STEP(
    slot[g] = b;
    header[g] = NEW_COUNTER(header[g - 2] & COUNTER) + (DEPTH | (flags));
    checksum[g] = CHECKSUM(header[g], slot[g])
  )
}

#define NEW_SLOT(place) (block * (leaves && where == (place)))
#define NEW_COVERS (COVERS * leaves)

inline build_pair() {
  if /* the key goes where there is room; a guest may find its home free, a stashed key both */
  :: leaves && where != NOWHERE -> where = AT_HOME
  :: leaves && where == STASHED -> where = GUEST
  :: skip
  fi;
  if
  :: build(2, NEW_SLOT(AT_HOME), NEW_COVERS | NEW_OVERFLOW | NEW_SPILLED);
     build(3, NEW_SLOT(GUEST), NEW_COVERS)
  :: build(3, NEW_SLOT(GUEST), NEW_COVERS);
     build(2, NEW_SLOT(AT_HOME), NEW_COVERS | NEW_OVERFLOW | NEW_SPILLED)
  fi
}

/* One publication: depth, counter, and the slot of a key that leaves goes. */
inline stamp(g) {
  if
  :: leaves ->
#ifdef TRIM_BEFORE_STAMP
     publish(g, 0, 0, 0);
#endif
     publish(g, 0, DEPTH, COVERS | OVERFLOW | SPILLED)
  :: !leaves && g == 0 && NO_GUEST_LEFT -> publish(g, slot[g], DEPTH, OVERFLOW)
  :: !leaves && !(g == 0 && NO_GUEST_LEFT) -> publish(g, KEPT(g), DEPTH, 0)
  fi;
}

/* A key that stays keeps its slot. */
inline stamp_pair() {
  if
  :: stamp(0); stamp(1)
  :: stamp(1); stamp(0)
  fi
#ifdef PULLED_HOME
  ;
  if
  :: !leaves && where == GUEST -> where = AT_HOME
  :: else
  fi
#endif
}

/* What clients READ; `route` is the server's own. */
inline show_directory() { directory = leaves }

inline unlock_segment() {
  d_step { route = leaves; others = stays_others; locked = false }
}

proctype split() {
  bool stays_others;
  atomic { !locked -> locked = true }
  if
  :: others -> stays_others = true
  :: stays_others = false
  fi;
#ifdef DIRECTORY_BEFORE_BUILD
  show_directory();
#endif
  build_pair();
#ifndef DIRECTORY_AFTER_STAMP
  show_directory();
#endif
#ifdef MUTATED_BEFORE_STAMP
  if
  :: leaves -> unlock_segment(); stamp_pair(); goto end
  :: else
  fi;
#endif
  stamp_pair();
#ifdef DIRECTORY_AFTER_STAMP
  show_directory();
#endif
  unlock_segment();
end:
  skip
}

/* -------------------------------------------------------------------------------- the reader */

/* One READ of a group, and what is done about it. */
#ifdef WORDS
#define READ_GROUP(g, decide) fetch_words(g); atomic { decide }
#else
#define READ_GROUP(g, decide) atomic { c = checksum[g]; h = header[g]; s = slot[g]; decide }
#endif

inline fetch_words(g) {
  do
  :: atomic { !(fetched & 1) -> c = checksum[g]; fetched = fetched | 1 }
  :: atomic { !(fetched & 2) -> h = header[g]; fetched = fetched | 2 }
  :: atomic { !(fetched & 4) -> s = slot[g]; fetched = fetched | 4 }
  :: atomic { fetched == 7 -> fetched = 0; break }
  od
}

/* Of a record that the group just proved leads to. */
inline read_record(other) {
  if
  :: atomic { s != 0 && (state[s] == LIVE || state[s] == SUPERSEDED) -> get_found(value[s]) }
     goto done
  :: atomic { s != 0 && state[s] == FOREIGN -> other = true }
  :: atomic { s != 0 && (state[s] == PREPARED || state[s] == UNREADABLE) -> goto again }
  :: s == 0
  fi
}

#define VERIFIES (c == CHECKSUM(h, s))
/* A pair that is not moved yet: the client goes to the server, or begins again. */
inline forget() {
  c = 0; h = 0; s = 0; home = 0; neighbour = 0; other_home = false; other_neighbour = false;
  segment = 0; fresh = false
}

/* From one READ to the next is one step: what is decided in between is private. */
proctype reader() {
  byte gets, segment, fetched, s;
  short c, h, home, neighbour;
  bool other_home, other_neighbour, fresh;
next:
  get_called();
again:
  atomic {
    forget();
    if /* a slot from the cache, or of a group that did not verify */
    :: state[1] == LIVE -> get_found(value[1]); goto done
    :: state[2] == LIVE -> get_found(value[2]); goto done
    :: skip
    fi;
    if
    :: segment = 0
    :: segment = 1
    :: segment = directory; fresh = true
    fi
  }
  READ_GROUP(HOME(segment),
    assert(!fresh || c != 0); /* a reader that the directory leads here finds a group */
    if
    :: !VERIFIES -> goto again
    :: else
    fi;
    if
    :: !HOME_COVERS ->
       assert(!fresh || directory != segment); /* it has changed since: this split, and no other */
       goto again
    :: else
    fi;
    home = h;
    if
    :: FORWARDED -> goto ask
    :: else
    fi;
    if
    :: s != 0 -> c = 0; h = 0
    :: else -> goto home_done
    fi
  );
  read_record(other_home);
home_done:
  atomic {
    c = 0; h = 0; s = 0;
    if
    :: !(home & OVERFLOW) && (home & SPILLED) -> goto ask
    :: !(home & OVERFLOW) && !(home & SPILLED) && !other_home -> goto missed
    :: !(home & OVERFLOW) && !(home & SPILLED) && other_home -> goto look_again
    :: else
    fi
  }
  READ_GROUP(NEIGHBOUR(segment),
    if
    :: !VERIFIES || !NEIGHBOUR_COVERS -> goto again
    :: else
    fi;
    neighbour = h;
    if
    :: NEIGHBOUR_FORWARDED -> goto ask
    :: else
    fi;
    if
    :: s != 0 -> c = 0; h = 0
    :: else -> goto neighbour_done
    fi
  );
  read_record(other_neighbour);
neighbour_done:
  atomic {
    c = 0; h = 0; s = 0;
    if
    :: home & SPILLED -> goto ask
    :: else
    fi
  }
look_again:
  READ_GROUP(HOME(segment),
    if
    :: !UNCHANGED(home) -> goto again
    :: else
    fi;
    if
    :: !other_neighbour -> goto missed
    :: else
    fi
  );
  READ_GROUP(NEIGHBOUR(segment),
    if
    :: !UNCHANGED(neighbour) -> goto again
    :: else
    fi
  );
missed:
  atomic { get_missed(); goto done }
ask:
  atomic {
    !locked ->
    if
    :: where != NOWHERE -> get_found(value[block])
    :: else -> get_missed()
    fi
  }
done:
  atomic {
    forget();
    gets++;
    if
    :: gets < 2 -> goto next
    :: else
    fi
  }
}

init {
  d_step {
    slot[0] = 0;
    header[0] = COVERS;
    header[1] = COVERS
  }
  atomic {
    if
    :: leaves = true
    :: leaves = false
    fi;
    if
    :: others = true; header[0] = header[0] | OVERFLOW
    :: others = false
    fi;
    if
    :: where = NOWHERE
    :: where = AT_HOME; slot[0] = 1
    :: where = GUEST; slot[1] = 1; header[0] = header[0] | OVERFLOW
    :: where = STASHED; header[0] = header[0] | SPILLED
    fi;
    if
    :: where != NOWHERE -> present[0] = true; block = 1; state[1] = LIVE
    :: else
    fi;
    checksum[0] = CHECKSUM(header[0], slot[0]);
    checksum[1] = CHECKSUM(header[1], slot[1]);
#ifdef PAIRS
    header[2] = DEPTH | FORWARD | (COVERS * leaves);
    header[3] = header[2];
    checksum[2] = CHECKSUM(header[2], slot[2]);
    checksum[3] = CHECKSUM(header[3], slot[3]);
    show_directory();
#endif
    run mutator();
    run split();
    run reader()
  }
}
