/* A one-sided counter ends while clients add to it.
 *
 * Mirrors the rule for counter cells (design: words that clients change): clients FETCH_AND_ADD or
 * CMP_AND_SWP a cell; DELETE and overwrite seal it first, by a FETCH_AND_ADD of its high bit from the
 * adapter's side (server/store/cells.h, CELL-1 to CELL-4).
 *
 * Modelled: a cell, clients that know it from any time in the past, the server that ends the counter
 * and carries its last value on (an overwrite by a two-sided counter, the strictest end). What
 * was applied according to the clients must be what is in the last value, and an addition that was
 * called after the end was acknowledged must not succeed.
 *
 * Left out: overflow into the high bit (values stay within +-2^61); lost connections (their outcome
 * is unknown by contract); the 8-byte result of an atomic is taken for true.
 *
 * accept: two clients, two operations each
 * reject OWNER_REREAD: reading again who owns the cell is not a seal (last value read, owner cleared)
 * reject OWNER_REREAD OWNER_FIRST: nor the other way round
 * reject SEAL_IGNORED: a result with the seal is void
 * reject SEAL_STORED: the seal is set by an atomic that returns the last value
 * reject CELL_REUSED: a cell never gets another counter
 */

#define CLIENTS 2
#define ADDITIONS 2
#define SEAL 128

byte cell;
bool owner = true; /* the record that says whose cell it is */
byte applied;      /* what clients believe */
byte last_value;
bool ended;
byte clients_ended;

#ifdef SEAL_IGNORED
#define VOID(word) false
#elif defined(OWNER_REREAD)
#define VOID(word) (!owner)
#else
#define VOID(word) (word & SEAL)
#endif

inline settle_addition() {
  d_step {
    applied++;
    assert(!late); /* else: applied to a counter whose end was acknowledged before */
    late = false; old = 0; expected = 0
  }
}

proctype client() {
  byte additions, old, expected;
  bool late;
  do
  :: additions < ADDITIONS ->
     additions++;
     late = ended;
     if
     :: atomic { old = cell; cell++ } /* FETCH_AND_ADD */
        if
        :: !VOID(old) -> settle_addition()
        :: VOID(old) -> skip /* goes to the server */
        fi
     :: expected = cell; /* CMP_AND_SWP of what a READ has seen */
        if
        :: VOID(expected) -> skip
        :: !VOID(expected) ->
           atomic {
             old = cell;
             if
             :: old == expected -> cell++
             :: else
             fi
           }
           if
           :: old == expected && !VOID(old) -> settle_addition()
           :: old != expected || VOID(old) -> skip
           fi
        fi
     fi;
     d_step { late = false; old = 0; expected = 0 }
  :: additions == ADDITIONS -> break
  od;
  clients_ended++
}

proctype server() {
#if defined(OWNER_REREAD)
#ifdef OWNER_FIRST
  owner = false;
  last_value = cell;
#else
  last_value = cell;
  owner = false;
#endif
#elif defined(SEAL_STORED)
  last_value = cell;
  cell = last_value + SEAL;
#else
  atomic { last_value = cell; cell = cell + SEAL }
  owner = false;
#endif
  ended = true;
#ifdef CELL_REUSED
  cell = 0;
#endif
  clients_ended == CLIENTS;
  assert(last_value == applied) /* else: an addition was lost, or counted although it was void */
}

init {
  atomic { run client(); run client(); run server() }
}
