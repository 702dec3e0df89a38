/* A home group and its overflow neighbour: where a key is, and when a reader may say that it is not.
 *
 * Mirrors: server/DESIGN.md "Whereabouts"; insert, insert_guest, erase_guest, fill, take_from_stash
 * (server/index/index.cc), put and remove (server/store/store.cc); the reader is client/get/get.cc from read_home()
 * to on_recheck().
 *
 * Modelled: one key at home, next door as a guest, in the stash, on disk alone (spilled), or nowhere;
 * every move between them, one publication after the other; update, delete, insert; two blocks,
 * reused at once, also by a foreign key. A reader with a cache of any age. It looks at home, next
 * door and at home again, or READs both groups as one piece, twice; one READ of two groups is two
 * looks in any order, and so are the two READs of a recheck.
 *
 * Left out, and why that is sound:
 *   - groups are stored and READ in one step (group.pml), records are READ in one (record.pml). What
 *     does not verify makes the GET begin again, which it may do at any time.
 *   - other keys of the same fingerprint do nothing here but be seen, in either group, at any time.
 *   - other guests: `others` keeps overflow set for their sake.
 *   - what the loader does: load.pml. Here a load is one step of the pair's lock.
 *
 * accept: one operation, two moves
 * accept-long OPERATIONS=2: two operations
 * accept-long MOVES=4: four moves
 * accept NO_OVERFLOW_FIRST: overflow may be set after a new guest's slot, while it is not live
 * reject NO_SECOND_LOOK: with overflow, home is looked at again
 * reject NO_SECOND_PAIR: one READ of the pair is not a snapshot
 * reject NO_NEIGHBOUR_AGAIN: after another key next door, the neighbour is looked at again as well
 * reject NO_HOME_AGAIN: and home too, not the neighbour alone
 * reject NO_LOOK_AFTER_OTHER: after another key at home, home is looked at again
 * reject NO_COUNTER: the home group's counter rises with every change of whereabouts
 * reject LEFT_BEFORE_HOME: a guest is at home before it leaves next door
 * reject LEFT_BEFORE_GUEST: a key that goes next door is there before it leaves home
 * reject SPILLED_CLEARED_EARLY: spilled is cleared only when the slot is there
 * reject SPILLED_SET_LATE: eviction sets spilled not later than it clears the slot
 * reject SPILLED_IS_A_MISS: a miss in a spilled group is a request to the server
 * reject OVERFLOW_CLEARED_EARLY: overflow is cleared only when the last guest has come home
 * reject EVICTED_LIVE: eviction supersedes the record
 */

#ifndef OPERATIONS
#define OPERATIONS 1
#endif
#ifndef MOVES
#define MOVES 2
#endif
#include "monitor.pml"

#define COUNTER_ONE 4
#define OVERFLOW 2
#define SPILLED 1
byte header[2]; /* 0 home, 1 neighbour */
byte slot[2];   /* block, 0: none */

#define UNREADABLE 0
#define PREPARED 1
#define LIVE 2
#define SUPERSEDED 3
#define FOREIGN 4
byte state[3];
byte value[3];

/* What the server knows. */
#define NOWHERE 0
#define AT_HOME 1
#define GUEST 2
#define STASHED 3
#define ON_DISK 4
byte where, block, disk_value, moves;
bool locked, others;

/* ---------------------------------------------------------------- rules that can be left out */

#ifdef NO_COUNTER
#define RAISED(h) (h)
#else
#define RAISED(h) ((h) + COUNTER_ONE)
#endif
#ifdef NO_SECOND_LOOK
#define HOME_UNCHANGED true
#elif defined(NO_HOME_AGAIN)
#define HOME_UNCHANGED (other_neighbour || header[0] == home)
#else
#define HOME_UNCHANGED (header[0] == home)
#endif
#ifdef NO_NEIGHBOUR_AGAIN
#define NEIGHBOUR_UNCHANGED true
#else
#define NEIGHBOUR_UNCHANGED (header[1] == neighbour)
#endif
#ifdef NO_LOOK_AFTER_OTHER
#define OTHER_HOME false
#else
#define OTHER_HOME other_home
#endif
#ifdef SPILLED_IS_A_MISS
#define IS_SPILLED(h) false
#else
#define IS_SPILLED(h) (h & SPILLED)
#endif

/* ------------------------------------------------------------------ publications of a group */

inline publish(g, new_slot, set, clear) {
  d_step {
    assert(header[g] < 256 - COUNTER_ONE);
    slot[g] = new_slot;
    header[g] = (RAISED(header[g]) | (set)) & (255 - (clear))
  }
}

inline publish_flags(set, clear) { publish(0, slot[0], set, clear) }

inline clear_overflow() {
  if
  :: !others -> publish_flags(0, OVERFLOW)
  :: others
  fi
}

inline insert_at(b) {
  if
  :: where == AT_HOME -> publish(0, b, 0, 0)
  :: where == GUEST ->
#ifdef NO_OVERFLOW_FIRST
     publish(1, b, 0, 0);
     publish_flags(OVERFLOW, 0)
#else
     publish_flags(OVERFLOW, 0);
     publish(1, b, 0, 0)
#endif
  :: where == STASHED -> publish_flags(SPILLED, 0)
  fi
}

/* -------------------------------------------------------------------------------- the mutator */

inline choose_place() {
  if
  :: where = AT_HOME
  :: where = GUEST
  fi
}

inline lock_pair() { atomic { !locked -> locked = true } }
inline unlock_pair() { atomic { acknowledge(); fresh = 0; locked = false } }

inline write_prepared(v) {
  atomic { fresh = 1 + (block == 1); state[fresh] = PREPARED; value[fresh] = v }
}

/* The freed block stays as it is, or a foreign key takes it. */
inline free_old() {
  atomic {
    if
    :: skip
    :: state[old] = FOREIGN
    fi;
    old = 0
  }
}

inline update_moving() {
  begin_operation(true);
  write_prepared(begun);
  state[block] = SUPERSEDED;
  if
  :: where == AT_HOME -> publish(0, fresh, 0, 0)
  :: where == GUEST -> publish(1, fresh, 0, 0)
  :: where == STASHED
  fi;
  state[fresh] = LIVE;
  atomic { old = block; block = fresh }
  unlock_pair();
  free_old()
}

inline delete() {
  begin_operation(false);
  if
  :: block != 0 -> state[block] = SUPERSEDED
  :: block == 0
  fi;
  if
  :: where == AT_HOME -> publish(0, 0, 0, 0)
  :: where == GUEST -> publish(1, 0, 0, 0); clear_overflow()
  :: where == STASHED || where == ON_DISK -> publish_flags(0, SPILLED)
  fi;
  atomic { old = block; block = 0; where = NOWHERE }
  unlock_pair();
  free_old()
}

/* Of a key that is nowhere, or on disk alone: then spilled goes when the new record is there. */
inline insert(v) {
  write_prepared(v);
  was_on_disk = (where == ON_DISK);
  if
  :: choose_place()
  :: where = STASHED
  fi;
#ifdef SPILLED_CLEARED_EARLY
  if
  :: was_on_disk -> publish_flags(0, SPILLED)
  :: !was_on_disk
  fi;
#endif
  insert_at(fresh);
  state[fresh] = LIVE;
  if
  :: was_on_disk && where != STASHED -> publish_flags(0, SPILLED)
  :: !was_on_disk || where == STASHED
  fi;
  atomic { block = fresh; was_on_disk = false }
}

inline come_home() {
#ifdef OVERFLOW_CLEARED_EARLY
  clear_overflow();
#endif
#ifdef LEFT_BEFORE_HOME
  publish(1, 0, 0, 0);
  publish(0, block, 0, 0);
#else
  publish(0, block, 0, 0);
  publish(1, 0, 0, 0);
#endif
  clear_overflow();
  where = AT_HOME
}

inline go_next_door() {
#ifdef LEFT_BEFORE_GUEST
  publish(0, 0, OVERFLOW, 0);
  publish(1, block, 0, 0);
#else
  publish(1, block, 0, 0);
  publish(0, 0, OVERFLOW, 0);
#endif
  where = GUEST
}

inline leave_stash() {
#ifdef SPILLED_CLEARED_EARLY
  publish_flags(0, SPILLED);
#endif
  choose_place();
  insert_at(block);
  publish_flags(0, SPILLED)
}

inline evict() {
  atomic { old = block; disk_value = value[block] }
#ifndef EVICTED_LIVE
  state[block] = SUPERSEDED;
#endif
  if
#ifdef SPILLED_SET_LATE
  :: where == AT_HOME -> publish(0, 0, 0, 0); publish_flags(SPILLED, 0)
#else
  :: where == AT_HOME -> publish(0, 0, SPILLED, 0)
#endif
  :: where == GUEST ->
     publish_flags(SPILLED, 0);
     publish(1, 0, 0, 0);
     clear_overflow()
  fi;
  atomic { block = 0; where = ON_DISK; locked = false }
  free_old()
}

inline moved() { atomic { fresh = 0; locked = false } }

proctype mutator() {
  byte fresh, old;
  bool was_on_disk;
  do
  :: begun < OPERATIONS && block != 0 -> /* in place */
     lock_pair();
     begin_operation(true);
     state[block] = UNREADABLE;
     atomic { state[block] = LIVE; value[block] = begun }
     unlock_pair()
  :: begun < OPERATIONS && block != 0 -> lock_pair(); update_moving()
  :: begun < OPERATIONS && where != NOWHERE -> lock_pair(); delete()
  :: begun < OPERATIONS && block == 0 ->
     lock_pair();
     begin_operation(true);
     insert(begun);
     unlock_pair()
  :: moves < MOVES && where == GUEST -> moves++; lock_pair(); come_home(); moved()
  :: moves < MOVES && where == AT_HOME -> moves++; lock_pair(); go_next_door(); moved()
  :: moves < MOVES && where == STASHED -> moves++; lock_pair(); leave_stash(); moved()
  :: moves < MOVES && (where == AT_HOME || where == GUEST) -> moves++; lock_pair(); evict()
  :: moves < MOVES && where == ON_DISK -> moves++; lock_pair(); insert(disk_value); moved()
  :: break
  od
}

/* ---------------------------------------------------------------------------------- the reader */

/* Of a record that a proved group leads to. `other`: the block is another key's. */
inline read_record(other) {
  if
  :: atomic { s != 0 && (state[s] == LIVE || state[s] == SUPERSEDED) -> get_found(value[s]) }
     goto done
  :: atomic { s != 0 && state[s] == FOREIGN -> other = true; s = 0 }
  :: atomic { s != 0 && (state[s] == PREPARED || state[s] == UNREADABLE) -> goto again }
  :: s == 0
  :: s == 0 -> other = true /* a stranger of the same fingerprint lives in this group */
  fi
}

inline forget() {
  s = 0; next_s = 0; home = 0; neighbour = 0; other_home = false; other_neighbour = false;
  as_pair = false
}

proctype reader() {
  byte gets, s, next_s, home, neighbour;
  bool other_home, other_neighbour, as_pair;
next:
  get_called();
again:
  atomic {
    forget();
    if /* a slot of any age, from the cache or of a group that did not verify */
    :: state[1] == LIVE -> get_found(value[1]); goto done
    :: state[2] == LIVE -> get_found(value[2]); goto done
    :: skip
    fi;
    if
    :: as_pair = true
    :: skip
    fi
  }
  if
  :: as_pair -> /* both groups in one READ, in any order */
     if
     :: atomic { home = header[0]; s = slot[0] }
        atomic { neighbour = header[1]; next_s = slot[1] }
     :: atomic { neighbour = header[1]; next_s = slot[1] }
        atomic { home = header[0]; s = slot[0] }
     fi
  :: atomic { !as_pair -> home = header[0]; s = slot[0] }
  fi;
  read_record(other_home);
  atomic {
    if
    :: !(home & OVERFLOW) && IS_SPILLED(home) -> goto ask
    :: !(home & OVERFLOW) && !IS_SPILLED(home) && !OTHER_HOME -> goto missed
    :: !(home & OVERFLOW) && !IS_SPILLED(home) && OTHER_HOME -> goto home_again
    :: home & OVERFLOW
    fi
  }
  if
  :: atomic { as_pair -> s = next_s; next_s = 0 }
  :: atomic { !as_pair -> neighbour = header[1]; s = slot[1] }
  fi;
  read_record(other_neighbour);
  if
  :: IS_SPILLED(home) -> goto ask
  :: !IS_SPILLED(home)
  fi;
#ifdef NO_SECOND_PAIR
  if
  :: as_pair -> goto missed
  :: !as_pair
  fi;
#endif
  if
  :: !other_neighbour && !as_pair
  :: (other_neighbour || as_pair) && NEIGHBOUR_UNCHANGED -> skip
     /* either order: the other one is after home_again */
  :: (other_neighbour || as_pair) && !NEIGHBOUR_UNCHANGED -> goto again
  :: (other_neighbour || as_pair) && HOME_UNCHANGED -> goto neighbour_again
  :: (other_neighbour || as_pair) && !HOME_UNCHANGED -> goto again
  fi;
home_again:
  if
  :: atomic { HOME_UNCHANGED -> goto missed }
  :: atomic { !HOME_UNCHANGED -> goto again }
  fi;
neighbour_again:
  if
  :: NEIGHBOUR_UNCHANGED -> skip
  :: atomic { !NEIGHBOUR_UNCHANGED -> goto again }
  fi;
missed:
  atomic { get_missed(); goto done }
ask:
  atomic {
    !locked ->
    if
    :: where == NOWHERE -> get_missed()
    :: where == ON_DISK -> get_found(disk_value)
    :: where != NOWHERE && where != ON_DISK -> get_found(value[block])
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
  atomic {
    if
    :: others = true; header[0] = OVERFLOW
    :: skip
    fi;
    if
    :: where = NOWHERE
    :: where = AT_HOME; slot[0] = 1
    :: where = GUEST; slot[1] = 1; header[0] = OVERFLOW
    :: where = STASHED; header[0] = header[0] | SPILLED
    :: where = ON_DISK; header[0] = header[0] | SPILLED; present[0] = true
    fi;
    if
    :: where != NOWHERE && where != ON_DISK -> present[0] = true; block = 1; state[1] = LIVE
    :: where == NOWHERE || where == ON_DISK
    fi;
    run mutator();
    run reader()
  }
}
