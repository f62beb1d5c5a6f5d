/*
 * One mmap of the whole budget's addresses with PROT_NONE and MAP_NORESERVE; pages become usable
 * from the bottom up, in steps of 2 MiB where the region is large enough for huge pages (a random
 * gather of rows is a third faster on them), page by page otherwise.
 *
 * A page belongs to one class or to none. It counts the records carved off its front and the used
 * ones, and links its free ones through their headers' version field, so that a page can leave its
 * class without a search. A class keeps its pages in a ring (for the eviction hand) and those with
 * free records in a second list.
 *
 * Charges: a page in use costs its bytes plus what its records cost elsewhere; a page that was
 * freed costs its bytes while the memory behind it is still there, and nothing once it was returned
 * to the system. The sum never exceeds the budget, so neither do the resident bytes of the region.
 *
 * The region can be backed by a memory file instead (ps_slab_share), before its first page is used.
 * Most systems give such files no huge pages by themselves, but make one of small pages when they
 * are asked to (MADV_COLLAPSE, Linux 6.1): done for each step before it is used, in 0.2 ms on a
 * quiet machine. Where that is not possible the region stays in small pages. A record that is freed
 * says so before anything else is put there.
 *
 * Cost: take and give are O(1). One owner thread; the I/O thread writes into records that are
 * LOADING and calls nothing here.
 */
#include "ps/store/slab.h"

#include "common/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of Linux; younger than the headers of some systems */
#endif

#define NO_CLASS UINT32_MAX

typedef struct page {
    uint32_t class_id;
    uint32_t n_carved, n_used;
    ps_place_t free_head;          /* 0: none */
    uint32_t next, prev;           /* ring of the class, or list of free pages (next only) */
    uint32_t part_next, part_prev; /* pages of the class with free records; 0 ends the list */
    bool resident;                 /* of a free page: there may be memory behind it */
} page_t;

typedef struct class
{
    size_t record_bytes;
    uint32_t per_page;
    uint32_t n_pages;
    uint32_t first; /* any page of the ring */
    uint32_t part;  /* first page with free records */
    size_t n_free;
} class_t;

struct ps_slab {
    uint8_t *base;    /* aligned to HUGE_BYTES */
    uint8_t *mapping; /* what munmap gets */
    size_t mapping_bytes;
    uint64_t budget_bytes, charged_bytes;
    size_t page_bytes;
    unsigned page_shift;
    size_t row_overhead_bytes;
    uint32_t n_pages;     /* usable numbers: 1 to n_pages */
    uint32_t n_touched;   /* pages given out at least once */
    uint32_t n_protected; /* pages below this number are readable and writable */
    uint32_t step_pages;
    bool collapses;                /* it is shared, and the system makes huge pages of small ones */
    psc_shared_control_t *control; /* of the file behind the region; NULL: it is anonymous */
    uint32_t free_pages;           /* list of pages that were given back */
    uint32_t n_resident;           /* of those, the resident ones */
    page_t *pages;                 /* [n_pages + 1] */
    class_t *classes;
    uint32_t n_classes, max_classes;
};

static uint64_t class_charge(const ps_slab_t *slab, const class_t *class)
{
    return slab->page_bytes + (uint64_t) class->per_page * slab->row_overhead_bytes;
}

/*
 * Rounded to half a cache line, so that a record touches no more lines than it must: one of an odd
 * number of halves spans the same number wherever it begins, one of whole lines begins with one.
 * Where that would waste more than an eighth, to the unit of places.
 */
size_t ps_store_record_bytes(size_t row_bytes)
{
    size_t value_bytes = sizeof(ps_row_header_t) + row_bytes;
    size_t halves = (value_bytes + 31) / 32 * 32;
    if ((halves - value_bytes) * 8 <= value_bytes)
        return halves;
    return (value_bytes + PS_PLACE_BYTES - 1) / PS_PLACE_BYTES * PS_PLACE_BYTES;
}

size_t ps_slab_capacity(uint64_t budget_bytes, size_t page_bytes, size_t row_overhead_bytes,
                        size_t record_bytes)
{
    size_t per_page = page_bytes / record_bytes;
    uint64_t charge = page_bytes + (uint64_t)per_page * row_overhead_bytes;
    uint64_t n_pages = budget_bytes / charge;
    if (n_pages >= PS_SLAB_MAX_REGION / page_bytes)
        n_pages = PS_SLAB_MAX_REGION / page_bytes - 1;
    return (size_t)n_pages * per_page;
}

static psc_status_t map_region(ps_slab_t *slab, psc_error_t *error)
{
    size_t bytes = ((size_t)slab->n_pages + 1) * slab->page_bytes;
    slab->mapping_bytes = bytes + HUGE_BYTES;
    void *mapping = mmap(NULL, slab->mapping_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return psc_error_set_errno(error, errno, "reserving %zu bytes of addresses for rows",
                                   slab->mapping_bytes);
    slab->mapping = mapping;
    size_t misaligned = (uintptr_t)mapping % HUGE_BYTES;
    slab->base = slab->mapping + (misaligned != 0 ? HUGE_BYTES - misaligned : 0);
    slab->step_pages = 1;
    if (bytes >= 16 * HUGE_BYTES) {
        slab->step_pages =
            slab->page_bytes < HUGE_BYTES ? (uint32_t)(HUGE_BYTES / slab->page_bytes) : 1;
        /* Only advice: without huge pages everything works, slower. */
        (void)madvise(slab->base, bytes, MADV_HUGEPAGE);
    }
    slab->n_protected = 1;
    return PSC_OK;
}

psc_status_t ps_slab_create(uint64_t budget_bytes, size_t page_bytes, size_t row_overhead_bytes,
                            ps_slab_t **slab_out, psc_error_t *error)
{
    if (page_bytes < 4096 || (page_bytes & (page_bytes - 1)) != 0 || budget_bytes < page_bytes)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a slab of %llu bytes in pages of %zu bytes is not possible",
                             (unsigned long long)budget_bytes, page_bytes);
    uint64_t n_pages = budget_bytes / page_bytes;
    if (n_pages >= PS_SLAB_MAX_REGION / page_bytes)
        n_pages = PS_SLAB_MAX_REGION / page_bytes - 1;
    ps_slab_t *slab = psc_alloc_zeroed(1, sizeof *slab);
    if (slab == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a slab");
    slab->budget_bytes = budget_bytes;
    slab->page_bytes = page_bytes;
    slab->page_shift = (unsigned)__builtin_ctzll(page_bytes);
    slab->row_overhead_bytes = row_overhead_bytes;
    slab->n_pages = (uint32_t)n_pages;
    slab->pages = psc_alloc_zeroed((size_t)n_pages + 1, sizeof *slab->pages);
    if (slab->pages == NULL) {
        psc_free(slab);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %llu slab pages",
                             (unsigned long long)n_pages);
    }
    psc_status_t st = map_region(slab, error);
    if (st != PSC_OK) {
        psc_free(slab->pages);
        psc_free(slab);
        return st;
    }
    *slab_out = slab;
    return PSC_OK;
}

void ps_slab_destroy(ps_slab_t *slab)
{
    if (slab == NULL)
        return;
    (void)munmap(slab->mapping, slab->mapping_bytes);
    psc_free(slab->classes);
    psc_free(slab->pages);
    psc_free(slab);
}

uint64_t ps_slab_region_bytes(const ps_slab_t *slab)
{
    return ((uint64_t)slab->n_pages + 1) << slab->page_shift;
}

psc_status_t ps_slab_share(ps_slab_t *slab, const psc_shared_file_t *file, psc_error_t *error)
{
    size_t bytes = (size_t)ps_slab_region_bytes(slab);
    if (slab->n_touched != 0)
        return psc_error_set(error, PSC_BUSY, "rows lie in memory of this process already");
    if (mmap(slab->base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file->fd,
             (off_t)file->control->rows_offset) == MAP_FAILED) {
        int reason = errno;
        PSC_BUG_ON(mmap(slab->base, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                        0) == MAP_FAILED);
        return psc_error_set(error, PSC_NO_MEMORY, "mapping a memory file for rows: %s",
                             strerrordesc_np(reason));
    }
    slab->control = file->control;
    slab->collapses = slab->step_pages > 1 || slab->page_bytes >= HUGE_BYTES;
    slab->n_protected = 1;
    (void)madvise(slab->base, bytes, MADV_HUGEPAGE);
    return PSC_OK;
}

uint8_t *ps_slab_base(const ps_slab_t *slab)
{
    return slab->base;
}

psc_status_t ps_slab_class(ps_slab_t *slab, size_t record_bytes, uint32_t *class_out,
                           psc_error_t *error)
{
    if (record_bytes == 0 || record_bytes % PS_PLACE_BYTES != 0 || record_bytes > slab->page_bytes)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "records of %zu bytes do not fit into pages of %zu bytes",
                             record_bytes, slab->page_bytes);
    for (uint32_t i = 0; i < slab->n_classes; i++) {
        if (slab->classes[i].record_bytes == record_bytes) {
            *class_out = i;
            return PSC_OK;
        }
    }
    if (slab->n_classes == slab->max_classes) {
        uint32_t max = slab->max_classes != 0 ? slab->max_classes * 2 : 4;
        class_t *classes = psc_realloc_array(slab->classes, max, sizeof *classes);
        if (classes == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a class of records");
        slab->classes = classes;
        slab->max_classes = max;
    }
    class_t *class = &slab->classes[slab->n_classes];
    memset(class, 0, sizeof *class);
    class->record_bytes = record_bytes;
    class->per_page = (uint32_t)(slab->page_bytes / record_bytes);
    *class_out = slab->n_classes++;
    return PSC_OK;
}

size_t ps_slab_record_bytes(const ps_slab_t *slab, uint32_t class_id)
{
    return slab->classes[class_id].record_bytes;
}

uint32_t ps_slab_n_classes(const ps_slab_t *slab)
{
    return slab->n_classes;
}

static void part_push(ps_slab_t *slab, class_t *class, uint32_t number)
{
    page_t *page = &slab->pages[number];
    page->part_prev = 0;
    page->part_next = class->part;
    if (class->part != 0)
        slab->pages[class->part].part_prev = number;
    class->part = number;
}

static void part_unlink(ps_slab_t *slab, class_t *class, uint32_t number)
{
    page_t *page = &slab->pages[number];
    if (page->part_prev != 0)
        slab->pages[page->part_prev].part_next = page->part_next;
    else
        class->part = page->part_next;
    if (page->part_next != 0)
        slab->pages[page->part_next].part_prev = page->part_prev;
}

ps_place_t ps_slab_page_place(const ps_slab_t *slab, uint32_t number, uint32_t i)
{
    const class_t *class = &slab->classes[slab->pages[number].class_id];
    return (ps_place_t)((((uint64_t)number << slab->page_shift) + i * class->record_bytes) /
                        PS_PLACE_BYTES);
}

ps_place_t ps_slab_take(ps_slab_t *slab, uint32_t class_id)
{
    class_t *class = &slab->classes[class_id];
    uint32_t number = class->part;
    if (number == 0)
        return 0;
    page_t *page = &slab->pages[number];
    ps_place_t place = page->free_head;
    if (place != 0)
        page->free_head = ps_store_row(slab->base, place)->version;
    else
        place = ps_slab_page_place(slab, number, page->n_carved++);
    class->n_free--;
    if (++page->n_used == class->per_page)
        part_unlink(slab, class, number);
    return place;
}

void ps_slab_give(ps_slab_t *slab, ps_place_t place)
{
    uint32_t number = ps_slab_page_of(slab, place);
    page_t *page = &slab->pages[number];
    class_t *class = &slab->classes[page->class_id];
    ps_row_header_t *row = ps_store_row(slab->base, place);
    ps_store_set_state(row, PS_ROW_FREE);
    row->version = page->free_head;
    page->free_head = place;
    class->n_free++;
    if (page->n_used-- == class->per_page)
        part_push(slab, class, number);
}

size_t ps_slab_free_records(const ps_slab_t *slab, uint32_t class_id)
{
    return slab->classes[class_id].n_free;
}

/* Huge pages for a part of the region that is shared and was never used. Only advice. */
static void make_huge(ps_slab_t *slab, uint8_t *start, size_t bytes)
{
    const size_t before = (HUGE_BYTES - (uintptr_t)start % HUGE_BYTES) % HUGE_BYTES;
    for (size_t at = before; slab->collapses && at + HUGE_BYTES <= bytes; at += HUGE_BYTES) {
        *(volatile uint8_t *)(start + at) = 0; /* none is made of nothing */
        slab->collapses = madvise(start + at, HUGE_BYTES, MADV_COLLAPSE) == 0 || errno == EAGAIN ||
                          errno == EBUSY || errno == ENOMEM;
    }
}

/* Makes pages up to `number` usable. */
static psc_status_t protect_up_to(ps_slab_t *slab, uint32_t number, psc_error_t *error)
{
    if (number < slab->n_protected)
        return PSC_OK;
    uint64_t end = ((uint64_t)number / slab->step_pages + 1) * slab->step_pages;
    if (end > (uint64_t)slab->n_pages + 1)
        end = (uint64_t)slab->n_pages + 1;
    size_t bytes = (size_t)(end - slab->n_protected) << slab->page_shift;
    uint8_t *start = slab->base + ((size_t)slab->n_protected << slab->page_shift);
    if (mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0) {
        int reason = errno;
        return psc_error_set(error, PSC_NO_MEMORY, "the system gives no memory for rows (%s)",
                             strerrordesc_np(reason));
    }
    make_huge(slab, start, bytes);
    slab->n_protected = (uint32_t)end;
    return PSC_OK;
}

/* Returns memory of freed pages to the system until `bytes` more fit into the budget. */
static bool make_room(ps_slab_t *slab, uint64_t bytes)
{
    for (uint32_t number = slab->free_pages;
         slab->charged_bytes + bytes > slab->budget_bytes && number != 0;
         number = slab->pages[number].next) {
        page_t *page = &slab->pages[number];
        if (!page->resident)
            continue;
        (void)madvise(slab->base + ((size_t)number << slab->page_shift), slab->page_bytes,
                      slab->control != NULL ? MADV_REMOVE : MADV_DONTNEED);
        page->resident = false;
        slab->charged_bytes -= slab->page_bytes;
    }
    return slab->charged_bytes + bytes <= slab->budget_bytes;
}

/* Takes a page that was freed, a resident one first in the list; uncharges it. 0: none. */
static uint32_t pop_free_page(ps_slab_t *slab)
{
    uint32_t number = slab->free_pages;
    if (number == 0)
        return 0;
    page_t *page = &slab->pages[number];
    slab->free_pages = page->next;
    if (page->resident)
        slab->charged_bytes -= slab->page_bytes;
    return number;
}

static void push_free_page(ps_slab_t *slab, uint32_t number, bool resident)
{
    page_t *page = &slab->pages[number];
    page->class_id = NO_CLASS;
    page->resident = resident;
    page->next = slab->free_pages;
    slab->free_pages = number;
    if (resident)
        slab->charged_bytes += slab->page_bytes;
}

psc_status_t ps_slab_grow(ps_slab_t *slab, uint32_t class_id, psc_error_t *error)
{
    class_t *class = &slab->classes[class_id];
    uint64_t charge = class_charge(slab, class);
    uint32_t number = pop_free_page(slab);
    bool fresh = number == 0;
    if (fresh && slab->n_touched == slab->n_pages)
        return PSC_BUSY;
    if (!make_room(slab, charge)) {
        if (!fresh)
            push_free_page(slab, number, slab->pages[number].resident);
        return PSC_BUSY;
    }
    if (fresh) {
        number = slab->n_touched + 1;
        psc_status_t st = protect_up_to(slab, number, error);
        if (st != PSC_OK)
            return st;
        slab->n_touched = number;
    }
    page_t *page = &slab->pages[number];
    memset(page, 0, sizeof *page);
    page->class_id = class_id;
    if (class->first == 0) {
        page->next = page->prev = number;
        class->first = number;
    } else { /* at the end of the ring, in front of the first */
        page->next = class->first;
        page->prev = slab->pages[class->first].prev;
        slab->pages[page->prev].next = number;
        slab->pages[page->next].prev = number;
    }
    part_push(slab, class, number);
    class->n_pages++;
    class->n_free += class->per_page;
    slab->charged_bytes += charge;
    return PSC_OK;
}

void ps_slab_page_free(ps_slab_t *slab, uint32_t number)
{
    page_t *page = &slab->pages[number];
    class_t *class = &slab->classes[page->class_id];
    PSC_BUG_ON(page->n_used != 0);
    psc_shared_move(slab->control);
    part_unlink(slab, class, number);
    if (page->next == number) {
        class->first = 0;
    } else {
        slab->pages[page->prev].next = page->next;
        slab->pages[page->next].prev = page->prev;
        if (class->first == number)
            class->first = page->next;
    }
    class->n_pages--;
    class->n_free -= class->per_page;
    slab->charged_bytes -= class_charge(slab, class);
    push_free_page(slab, number, true);
}

uint32_t ps_slab_first_page(const ps_slab_t *slab, uint32_t class_id)
{
    return slab->classes[class_id].first;
}

uint32_t ps_slab_next_page(const ps_slab_t *slab, uint32_t page)
{
    return slab->pages[page].next;
}

uint32_t ps_slab_n_pages(const ps_slab_t *slab, uint32_t class_id)
{
    return slab->classes[class_id].n_pages;
}

size_t ps_slab_class_records(const ps_slab_t *slab, uint32_t class_id)
{
    const class_t *class = &slab->classes[class_id];
    return (size_t) class->n_pages * class->per_page;
}

bool ps_slab_is_record(const ps_slab_t *slab, uint32_t class_id, ps_place_t place)
{
    const page_t *page = &slab->pages[ps_slab_page_of(slab, place)];
    if (page->class_id != class_id)
        return false;
    size_t record_bytes = slab->classes[class_id].record_bytes;
    size_t offset = (size_t)place * PS_PLACE_BYTES & (slab->page_bytes - 1);
    return offset % record_bytes == 0 && offset / record_bytes < page->n_carved;
}

uint32_t ps_slab_page_of(const ps_slab_t *slab, ps_place_t place)
{
    return (uint32_t)(((uint64_t)place * PS_PLACE_BYTES) >> slab->page_shift);
}

uint32_t ps_slab_page_records(const ps_slab_t *slab, uint32_t page)
{
    return slab->pages[page].n_carved;
}

uint32_t ps_slab_page_used(const ps_slab_t *slab, uint32_t page)
{
    return slab->pages[page].n_used;
}

uint64_t ps_slab_charged_bytes(const ps_slab_t *slab)
{
    return slab->charged_bytes;
}

uint32_t ps_slab_end_page(const ps_slab_t *slab)
{
    return slab->n_touched + 1;
}

uint32_t ps_slab_page_class(const ps_slab_t *slab, uint32_t page)
{
    return slab->pages[page].class_id;
}

void ps_slab_set_budget(ps_slab_t *slab, uint64_t budget_bytes)
{
    slab->budget_bytes = budget_bytes;
    (void)make_room(slab, 0);
}
