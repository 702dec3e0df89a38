/* One key and its blocks: records that are READ while they are rewritten, moved, freed, reused.
 *
 * Mirrors: server/DESIGN.md "A record in place", "A record that moves", "A key that goes"; Store's
 * write_in_place, write_prepared, supersede, publish, remove (server/store/record_store.cc); the reader is
 * client/get/get.cc: next_candidate, on_record, on_home, home_done, recheck.
 *
 * Modelled: two blocks, each in words: body (which key, which value) and checksum word (the checksum
 * of such a body, and the state). The two are stored one by one and READ one by one in either order. A
 * block that was freed is taken at once by this key or by a foreign one, which also goes through
 * prepared, live and superseded. The home group of the key; a cached slot of any age.
 *
 * Left out, and why that is sound:
 *   - several words of body: a body that is half written is a third value of its one word.
 *   - the location in the checksum: a block is only ever READ here at its place.
 *   - the group's words: a group is stored and READ in one step (group.pml).
 *   - other groups, neighbour, splits: pair.pml and split.pml.
 *   - checksums that collide.
 *
 * accept: in place, moving, delete, insert, foreign reuse, two operations
 * accept-long OPERATIONS=4: four
 * accept SUPERSEDED_AFTER_GROUP: the old record may be superseded after the group too
 * accept-long SUPERSEDED_AFTER_GROUP OPERATIONS=4: four
 * reject NO_CHECKSUM: a record is proved by a checksum over all that it says
 * reject STATE_OUTSIDE: the state is in the checksum word
 * reject LIVE_FIRST: a new record is written prepared, live only after the group
 * reject LIVE_BEFORE_SUPERSEDED: the old record is superseded before the new one is live
 * reject SUPERSEDED_LAST: the old record is superseded before the group is published
 * reject LIVE_BEFORE_SLOT: the group is published before the new record is live
 * reject INSERTED_LIVE: a key inserted again is written prepared as well
 * reject SLOT_BEFORE_SUPERSEDED: DELETE supersedes the record before it clears the slot
 * reject FREED_EARLY: a block is free only when no slot leads to it
 * reject LICENCE_FROM_CACHE: superseded is an answer only through a group proved in the same GET
 * reject PREPARED_RETURNED: prepared is not an answer, not even through a group proved in the same GET
 * reject OTHER_KEY_IS_A_MISS: after another key, the group is looked at again
 */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#include "monitor.pml"

/* Bodies: 0 half written, 1 a foreign key's, 2 + i value i of the key. */
#define HALF 0
#define FOREIGN 1
#define OURS 2
#define LIVE 0
#define SUPERSEDED 1
#define PREPARED 2
byte body[3];
byte sum[3];   /* the body that the checksum is of; 0: of nothing */
byte state[3]; /* stored in one step with sum */

bool taken[3]; /* blocks that are no longer free */

/* The home group: a slot, and the counter of its header. */
byte slot, counter;
byte block; /* the key's, 0: none */

/* ---------------------------------------------------------------- rules that can be left out */

#ifdef LIVE_FIRST
#define FIRST LIVE
#else
#define FIRST PREPARED
#endif
#ifdef INSERTED_LIVE
#define FIRST_INSERTED LIVE
#else
#define FIRST_INSERTED FIRST
#endif
#ifdef NO_CHECKSUM
#define VERIFIES true
#else
#define VERIFIES (read_body != HALF && read_body == read_sum)
#endif
#ifdef LICENCE_FROM_CACHE
#define LICENSED true
#else
#define LICENSED proved
#endif
#ifdef PREPARED_RETURNED
#define MAY_BE_PREPARED proved
#else
#define MAY_BE_PREPARED false
#endif
#ifdef OTHER_KEY_IS_A_MISS
#define LOOKED_AGAIN true
#else
#define LOOKED_AGAIN (counter == counter_before)
#endif

/* ---------------------------------------------------------------------------------- the writer */

inline write_record(b, content, first_state) {
  body[b] = HALF;
  body[b] = content;
  atomic { sum[b] = content; state[b] = first_state }
}

inline publish(s) {
  atomic { slot = s; counter++ }
}

inline move_record() {
  write_record(fresh, OURS + begun, FIRST);
#ifdef LIVE_BEFORE_SUPERSEDED
  state[fresh] = LIVE;
#endif
#if !defined(SUPERSEDED_LAST) && !defined(SUPERSEDED_AFTER_GROUP)
  state[old] = SUPERSEDED;
#endif
#ifdef LIVE_BEFORE_SLOT
  state[fresh] = LIVE;
#endif
#ifdef FREED_EARLY
  taken[old] = false;
#endif
  publish(fresh);
#ifdef SUPERSEDED_AFTER_GROUP
  state[old] = SUPERSEDED;
#endif
  state[fresh] = LIVE;
#ifdef SUPERSEDED_LAST
  state[old] = SUPERSEDED;
#endif
  block = fresh
}

inline take_block() {
  if
  :: !taken[1] -> fresh = 1
  :: !taken[2] -> fresh = 2
  fi;
  taken[fresh] = true
}

proctype writer() {
  byte old, fresh;
  do
  :: begun < OPERATIONS && block != 0 -> /* in place */
     begin_operation(true);
     write_record(block, OURS + begun, LIVE);
     acknowledge()
  :: begun < OPERATIONS && block != 0 && !(taken[1] && taken[2]) -> /* moving */
     atomic { take_block(); old = block }
     begin_operation(true);
     move_record();
     acknowledge();
     atomic { taken[old] = false; old = 0; fresh = 0 }
  :: begun < OPERATIONS && block != 0 -> /* delete */
     begin_operation(false);
#ifdef SLOT_BEFORE_SUPERSEDED
     publish(0);
     state[block] = SUPERSEDED;
#else
     state[block] = SUPERSEDED;
     publish(0);
#endif
     acknowledge();
     atomic { taken[block] = false; block = 0 }
  :: begun < OPERATIONS && block == 0 && !(taken[1] && taken[2]) -> /* insert */
     atomic { take_block() }
     begin_operation(true);
     write_record(fresh, OURS + begun, FIRST_INSERTED);
     publish(fresh);
     state[fresh] = LIVE;
     acknowledge();
     atomic { block = fresh; fresh = 0 }
  :: break
  od
}

/* A foreign key, which takes any free block at any time and may give it back. */
proctype foreign_key() {
  byte b;
  atomic {
    if
    :: !taken[1] -> b = 1
    :: !taken[2] -> b = 2
    fi;
    taken[b] = true
  }
  write_record(b, FOREIGN, PREPARED);
  state[b] = LIVE;
  state[b] = SUPERSEDED;
  taken[b] = false
}

/* ---------------------------------------------------------------------------------- the reader */

inline fetch_body() { read_body = body[b] }
inline fetch_sum() { atomic { read_sum = sum[b]; read_state = state[b] } }

/* One READ of a record: its words in any order, other processes in between. */
inline read_record() {
#ifdef STATE_OUTSIDE
  if
  :: fetch_body(); read_sum = sum[b]; read_state = state[b]
  :: read_state = state[b]; fetch_body(); read_sum = sum[b]
  fi
#else
  if
  :: fetch_body(); fetch_sum()
  :: fetch_sum(); fetch_body()
  fi
#endif
}

inline forget() {
  b = 0; proved = false; counter_before = 0; read_body = 0; read_sum = 0; read_state = 0
}

proctype reader() {
  byte gets, b, counter_before, read_body, read_sum, read_state;
  bool proved;
next:
  get_called();
again:
  atomic {
    forget();
    if /* a slot of any age, from the cache or of a group that did not verify */
    :: b = 1
    :: b = 2
    :: goto read_home
    fi
  }
  read_record();
  goto judge;
read_home:
  atomic {
    forget();
    b = slot; counter_before = counter; proved = true;
    if
    :: b == 0 -> get_missed(); goto done
    :: else
    fi
  }
  read_record();
judge:
  atomic {
    if
    :: !VERIFIES && proved -> goto again
    :: !VERIFIES && !proved -> goto read_home
    :: else
    fi;
    assert(read_body != HALF);
    if
    :: read_body == FOREIGN && !proved -> goto read_home
    :: read_body == FOREIGN && proved -> goto look_again
    :: else
    fi;
    if
    :: read_state == LIVE || (read_state == SUPERSEDED && LICENSED) ||
       (read_state == PREPARED && MAY_BE_PREPARED) ->
       get_found(read_body - OURS); goto done
    :: else
    fi;
    if
    :: proved -> goto again
    :: else -> goto read_home
    fi
  }
look_again:
  atomic {
    if
    :: LOOKED_AGAIN -> get_missed()
    :: else -> goto again
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
    :: block = 1; slot = 1; taken[1] = true; present[0] = true;
       body[1] = OURS; sum[1] = OURS; state[1] = LIVE
    :: skip
    fi;
    run writer();
    run foreign_key();
    run reader()
  }
}
