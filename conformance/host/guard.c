// A guard of memory: each allocation of torch has pages of its own, with inaccessible pages on both sides.
//
// The slots through which torch's libraries call the allocator are replaced in this process. A handler records an access to
// an inaccessible page, opens the page and lets the kernel go on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, ABSOLUTE = R_X86_64_64 };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, ABSOLUTE = R_AARCH64_ABS64 };
#else
#error "relocations of this machine are not in the table"
#endif

#define ARENA ((size_t)1 << 36)        // bytes of addresses, which cost nothing until they are used
#define MARGIN ((size_t)1 << 16)       // bytes of inaccessible pages that belong to each side of an allocation
#define MOST_LIVE 16000                // each takes two of the 65,530 maps that Linux allows
#define MOST_RECORDS 512
#define MOST_OPEN 2048                 // pages that are open at a time

enum { BEYOND = 1, BEFORE = 2 };       // where an allocation has the page that it touches
enum { IS_BEFORE, IS_BEYOND, IS_FREED };
typedef struct { uint64_t bytes; uint32_t place, write; } Record;

static char *arena, *top;
static size_t page, live;
static uint64_t *owners;               // of each page of the arena: its allocation's first page plus one, 0 for none
static struct { uint64_t bytes, pages; } *allocations;  // by first page
static atomic_flag lock = ATOMIC_FLAG_INIT;
static atomic_int side, recorded, opened, missed;
static Record records[MOST_RECORDS];
static char *open_pages[MOST_OPEN];
static struct sigaction former[2];

static size_t number(const void *p) { return (size_t)((const char *)p - arena) / page; }
static int ours(const void *p) { return arena && (const char *)p >= arena && (const char *)p < arena + ARENA; }
static void acquire(void) { while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) {} }
static void release(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

// Take access and content from pages, as those beside them have it, with which they become one map.
static void close_pages(char *first, size_t bytes) {
    mmap(first, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Close the pages that accesses opened, so that the next access to one of them is recorded as well.
static void close_opened(void) {
    for (int i = 0, count = opened < MOST_OPEN ? opened : MOST_OPEN; i < count; i++) close_pages(open_pages[i], page);
    opened = 0;
}

// An allocation that ends (but for `alignment`) or begins at an inaccessible page; NULL if there is no room.
static void *allocate(size_t bytes, size_t alignment) {
    size_t pages = (bytes + page - 1) / page;
    if (!bytes) return NULL;
    acquire();
    if (!live) close_opened(), top = arena;
    char *first = top + MARGIN;
    if (alignment > page || live >= MOST_LIVE || pages * page + 2 * MARGIN > (size_t)(arena + ARENA - top)
        || mprotect(first, pages * page, PROT_READ | PROT_WRITE)) {
        release();
        missed++;
        return NULL;
    }
    top = first + pages * page + MARGIN;
    live++;
    size_t index = number(first);
    for (size_t i = number(first - MARGIN); i < number(top); i++) owners[i] = index + 1;
    allocations[index].bytes = bytes, allocations[index].pages = pages;
    release();
    return side == BEYOND ? first + ((pages * page - bytes) & ~(alignment - 1)) : first;
}

static void guarded_free(void *p) {
    if (!ours(p)) { free(p); return; }
    int kept = errno;
    acquire();
    size_t index = owners[number(p)] - 1;
    close_pages(arena + index * page, allocations[index].pages * page);
    live--;
    release();
    errno = kept;
}

// Tensors end to the byte: a view may begin anywhere, so no kernel may rely on the alignment of a tensor.
static int of_tensors(void **p, size_t alignment, size_t bytes) {
    *p = side ? allocate(bytes, 1) : NULL;
    return *p ? 0 : posix_memalign(p, alignment, bytes);
}

// Buffers inside of kernels keep the alignment that they ask for.
static int of_kernels(void **p, size_t alignment, size_t bytes) {
    *p = side ? allocate(bytes, alignment) : NULL;
    return *p ? 0 : posix_memalign(p, alignment, bytes);
}

static void *guarded_malloc(size_t bytes) {
    void *p = side ? allocate(bytes, 16) : NULL;
    return p ? p : malloc(bytes);
}

static void *guarded_realloc(void *p, size_t bytes) {
    if (!ours(p)) return realloc(p, bytes);
    size_t before = allocations[owners[number(p)] - 1].bytes;
    void *moved = guarded_malloc(bytes);
    if (moved) memcpy(moved, p, before < bytes ? before : bytes), guarded_free(p);
    return moved;
}

static int writes(const ucontext_t *context) {
#if defined(__x86_64__)
    return (context->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    const uint32_t *head = (const uint32_t *)context->uc_mcontext.__reserved;
    for (; head[0]; head += head[1] / 4)  // the record with the magic number of ESR_EL1
        if (head[0] == 0x45535201) return (*(const uint64_t *)(head + 2) >> 6) & 1;
    return 0;
#endif
}

// Replace the load or store that a fault stopped at, if it demands alignment, by the one of the same length that does not.
// Returns whether it is one. A kernel may rely on the alignment of what it allocates itself, which only here is not torch's.
static int unalign(const ucontext_t *context) {
#if defined(__x86_64__)
    uint8_t *at = (uint8_t *)context->uc_mcontext.gregs[REG_RIP];
    uint8_t *prefix = NULL, *op, mask = 3, aligned = 1, unaligned = 2;  // the bits of VEX and EVEX for the prefixes 66 and F3
    if (*at == 0xC5) prefix = at + 1, op = at + 2;
    else if (*at == 0xC4) prefix = at + 2, op = at + 3;
    else if (*at == 0x62) prefix = at + 2, op = at + 4;
    else {
        mask = 0xFF, aligned = 0x66, unaligned = 0xF3;
        if (*at == aligned) prefix = at++;
        if ((*at & 0xF0) == 0x40) at++;             // REX
        if (*at != 0x0F) return 0;
        op = at + 1;
    }
    // movdqa and movdqu differ in the prefix, movaps and movups in the opcode
    int integers = (*op == 0x6F || *op == 0x7F) && prefix && (*prefix & mask) == aligned, floats = (*op & ~1) == 0x28;
    if (!integers && !floats) return 0;
    char *start = (char *)((uintptr_t)(prefix ? prefix : op) & ~(page - 1));
    size_t bytes = (size_t)((char *)op + 1 - start);
    if (mprotect(start, bytes, PROT_READ | PROT_WRITE | PROT_EXEC)) return 0;
    if (integers) *prefix = (uint8_t)((*prefix & ~mask) | unaligned);
    else *op ^= 0x28 ^ 0x10;
    return !mprotect(start, bytes, PROT_READ | PROT_EXEC);
#else
    (void)context;
    return 0;                                       // loads and stores demand no alignment
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    int kept = errno;
    // a fault without an address is that of a load or store that demands alignment
    if (info->si_code == 128 && unalign(context)) {
        errno = kept;
        return;
    }
    char *at = (char *)((uintptr_t)info->si_addr & ~(page - 1));
    uint64_t owner = info->si_code > 0 && ours(at) ? owners[number(at)] : 0;
    if (!owner) {
        // returning with the former handler in place executes the access again
        sigaction(signal, &former[signal == SIGBUS], NULL);
        return;
    }
    int write = writes(context);
    if (side) {
        size_t first = owner - 1, end = first + allocations[first].pages;
        uint32_t place = number(at) < first ? IS_BEFORE : number(at) < end ? IS_FREED : IS_BEYOND;
        int n = atomic_fetch_add(&recorded, 1);
        if (n < MOST_RECORDS) records[n] = (Record){allocations[first].bytes, place, write};
    }
    int n = atomic_fetch_add(&opened, 1);
    if (n < MOST_OPEN) open_pages[n] = at;
    else missed++;
    mprotect(at, page, write ? PROT_READ | PROT_WRITE : PROT_READ);
    errno = kept;
}

static const struct { const char *library, *symbol; void *replacement; } SLOTS[] = {
    {"libc10.so", "posix_memalign", of_tensors},
    {"libtorch_cpu.so", "posix_memalign", of_kernels},
    {"libtorch_cpu.so", "malloc", guarded_malloc},
    {"libtorch_cpu.so", "realloc", guarded_realloc},
    {"", "free", guarded_free},
};
enum { SLOT_COUNT = sizeof SLOTS / sizeof *SLOTS };

static int patched[SLOT_COUNT], installed = -1;

static int patch(struct dl_phdr_info *object, size_t size, void *own) {
    (void)size;
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (uintptr_t)own - start < header->p_memsz) return 0;  // this library
        if (header->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
    }
    const char *strings = NULL;
    const ElfW(Sym) *symbols = NULL;
    struct { const ElfW(Rela) *first; size_t bytes, skipped; } tables[2] = {{0}};
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) switch (d->d_tag) {
        case DT_STRTAB: strings = (const char *)d->d_un.d_ptr; break;
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)d->d_un.d_ptr; break;
        case DT_JMPREL: tables[0].first = (const ElfW(Rela) *)d->d_un.d_ptr; break;
        case DT_PLTRELSZ: tables[0].bytes = d->d_un.d_val; break;
        case DT_RELA: tables[1].first = (const ElfW(Rela) *)d->d_un.d_ptr; break;
        case DT_RELASZ: tables[1].bytes = d->d_un.d_val; break;
        case DT_RELACOUNT: tables[1].skipped = d->d_un.d_val; break;  // relative ones, which have no symbol, come first
    }
    // the kernel's own object states addresses that are not relocated
    if (!strings || !symbols || (uintptr_t)strings < object->dlpi_addr) return 0;
    const char *slash = strrchr(object->dlpi_name, '/'), *library = slash ? slash + 1 : object->dlpi_name;
    for (int t = 0; t < 2; t++) {
        size_t count = tables[t].first ? tables[t].bytes / sizeof(ElfW(Rela)) : 0;
        for (size_t i = tables[t].skipped; i < count; i++) {
            const ElfW(Rela) *one = &tables[t].first[i];
            unsigned type = ELF64_R_TYPE(one->r_info);
            if (type != JUMP_SLOT && type != GLOB_DAT && type != ABSOLUTE) continue;
            const char *name = strings + symbols[ELF64_R_SYM(one->r_info)].st_name;
            for (int s = 0; s < SLOT_COUNT; s++) {
                // a table of functions has its own malloc and free, which go together
                if (strcmp(name, SLOTS[s].symbol) || (*SLOTS[s].library && (strcmp(library, SLOTS[s].library) || type == ABSOLUTE)))
                    continue;
                void **slot = (void **)(object->dlpi_addr + one->r_offset);
                mprotect((void *)((uintptr_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE);
                *slot = SLOTS[s].replacement;
                patched[s]++;
            }
        }
    }
    return 0;
}

// Patch this process once. Returns 0, or -1 if torch's libraries do not call the allocator as expected or memory is refused.
int guard_install(void) {
    if (arena) return installed;
    page = (size_t)sysconf(_SC_PAGESIZE);
    void *reserved = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int data = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    owners = mmap(NULL, ARENA / page * sizeof *owners, data, flags, -1, 0);
    allocations = mmap(NULL, ARENA / page * sizeof *allocations, data, flags, -1, 0);
    if (reserved == MAP_FAILED || (void *)owners == MAP_FAILED || (void *)allocations == MAP_FAILED) return -1;
    arena = top = reserved;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, &former[0]);
    sigaction(SIGBUS, &action, &former[1]);
    dl_iterate_phdr(patch, (void *)guard_install);
    return installed = patched[0] && patched[SLOT_COUNT - 1] ? 0 : -1;
}

// Guard what is allocated from now on: 1 for allocations that end at an inaccessible page, 2 for those that begin behind one.
void guard_begin(int placement) {
    recorded = 0;
    opened = 0;
    missed = 0;
    side = placement;
}

// Allocate as before.
void guard_end(void) {
    side = 0;
    close_opened();
}

// The number of accesses recorded since guard_begin. No kernel may be running.
int guard_recorded(void) {
    close_opened();
    return recorded < MOST_RECORDS ? recorded : MOST_RECORDS;
}
const Record *guard_records(void) { return records; }
int guard_missed(void) { return missed; }  // allocations and accesses for which there was no room
