/*
 * Memory for row records: one region of addresses, reserved at start, whose pages are given to
 * classes of records of one size. A record never moves; its place is its offset in units of 16
 * bytes, so places (and not pointers) can be kept in the index, and the region may one day be
 * shared with a reader on the same machine.
 *
 *     ps_place_t place = ps_slab_take(slab, class_id);
 *     if (place == 0)
 *         ... ps_slab_grow(slab, class_id), or free a record of the class, or a page of another
 */
#ifndef PS_STORE_SLAB_H
#define PS_STORE_SLAB_H

#include "ps/store/store.h"

typedef struct ps_slab ps_slab_t;

#define PS_SLAB_MAX_REGION ((uint64_t)PS_PLACE_BYTES << 32)

/*
 * budget_bytes: what all pages together may cost. page_bytes: a power of two, at least 4,096.
 * row_overhead_bytes: what each record costs elsewhere (the index); charged with its page.
 * Errors: INVALID_ARGUMENT, NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_slab_create(uint64_t budget_bytes, size_t page_bytes,
                                           size_t row_overhead_bytes, ps_slab_t **slab_out,
                                           psc_error_t *error);
void ps_slab_destroy(ps_slab_t *slab);

/* Bytes of addresses that the region has. */
uint64_t ps_slab_region_bytes(const ps_slab_t *slab);

/*
 * Puts a memory file behind the region, so that other processes can read it; no page may be in use
 * yet. Borrows file until the slab is gone. Shared memory is charged like the other, and given back
 * by making a hole. Errors: BUSY (pages are in use), NO_MEMORY (the system refused; the region is
 * as it was).
 */
PSC_MUST_CHECK psc_status_t ps_slab_share(ps_slab_t *slab, const psc_shared_file_t *file,
                                          psc_error_t *error);

/* The region's first byte. Its first page is never usable: a place of 0 is nowhere. */
uint8_t *ps_slab_base(const ps_slab_t *slab);

/*
 * The class of records of record_bytes (a multiple of PS_PLACE_BYTES, at most a page), made when it
 * is new. Errors: INVALID_ARGUMENT, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_slab_class(ps_slab_t *slab, size_t record_bytes, uint32_t *class_out,
                                          psc_error_t *error);

/* Bytes from one record of the class to the next. */
size_t ps_slab_record_bytes(const ps_slab_t *slab, uint32_t class_id);

/* How many classes there are; they are numbered from 0. */
uint32_t ps_slab_n_classes(const ps_slab_t *slab);

/* Records that fit when every page belongs to a class of this record size. */
size_t ps_slab_capacity(uint64_t budget_bytes, size_t page_bytes, size_t row_overhead_bytes,
                        size_t record_bytes);

/* A free record of the class's own pages; 0 when there is none. */
ps_place_t ps_slab_take(ps_slab_t *slab, uint32_t class_id);

/* Frees a record; its header's state becomes PS_ROW_FREE. */
void ps_slab_give(ps_slab_t *slab, ps_place_t place);

/* Records of the class that can be taken without another page, of pages that it has. */
size_t ps_slab_free_records(const ps_slab_t *slab, uint32_t class_id);

/*
 * Gives the class another page. Errors: BUSY (the budget is used up), NO_MEMORY (the system
 * refused).
 */
PSC_MUST_CHECK psc_status_t ps_slab_grow(ps_slab_t *slab, uint32_t class_id, psc_error_t *error);

/* Takes a page without used records away from its class. */
void ps_slab_page_free(ps_slab_t *slab, uint32_t page);

/* Pages of a class form a ring. 0: no page. */
uint32_t ps_slab_first_page(const ps_slab_t *slab, uint32_t class_id);
uint32_t ps_slab_next_page(const ps_slab_t *slab, uint32_t page);
uint32_t ps_slab_n_pages(const ps_slab_t *slab, uint32_t class_id);
/* Records that its pages have, taken or not. */
size_t ps_slab_class_records(const ps_slab_t *slab, uint32_t class_id);
/* Whether a record of the class, used or not, is at what once was the place of one. */
bool ps_slab_is_record(const ps_slab_t *slab, uint32_t class_id, ps_place_t place);
uint32_t ps_slab_page_of(const ps_slab_t *slab, ps_place_t place);

/* Records of a page that were taken at least once, in use or not (their header tells). */
uint32_t ps_slab_page_records(const ps_slab_t *slab, uint32_t page);
uint32_t ps_slab_page_used(const ps_slab_t *slab, uint32_t page);
/* The i-th record of a page. */
ps_place_t ps_slab_page_place(const ps_slab_t *slab, uint32_t page, uint32_t i);

/* Pages that were ever in use have numbers below this one. */
uint32_t ps_slab_end_page(const ps_slab_t *slab);
/* The class that has the page, or UINT32_MAX. */
uint32_t ps_slab_page_class(const ps_slab_t *slab, uint32_t page);

/*
 * Another budget, at most that of the start. Returns memory of free pages as far as needed; what is
 * charged may exceed a smaller budget until pages are freed, and no page is given out meanwhile.
 */
void ps_slab_set_budget(ps_slab_t *slab, uint64_t budget_bytes);

/* What is charged against the budget now. */
uint64_t ps_slab_charged_bytes(const ps_slab_t *slab);

#endif
