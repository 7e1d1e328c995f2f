"""qnnpack/nn.LSTM/dynamic-quint8/ptq/projection/exact@qnnpack

memory: aten.quantized_lstm reads beyond a tensor of 176 bytes

QNNPACK's linear layers read beyond their weight if the input has more features than it
QNNPACK's linear layers do not compare the features of the input with those of the weight, as FBGEMM and oneDNN do: an input with more features is multiplied with what memory holds beyond the packed weight. An LSTM with proj_size, which dynamic quantization ignores, has such a layer for its hidden state.
Upstream: unreported
"""

import copy
import ctypes
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import torch
import warnings
import zlib
import torch.ao.quantization.quantize_fx
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from torch import Tensor, nn
from torch.ao.quantization import MinMaxObserver, PlaceholderObserver, QConfig, QConfigMapping
from torch.ao.quantization.backend_config import get_qnnpack_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from typing import Any

torch.set_grad_enabled(False)
torch.set_num_threads(1)
torch.backends.quantized.engine = "qnnpack"
warnings.simplefilter("ignore")
found = []


SOURCE = r"""
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
"""


PLACEMENTS = {"beyond": 1, "before": 2}


SIDES = ("before", "beyond", "freed")


class Unavailable(Exception):
    """Raised where memory cannot be guarded; the message says why."""


@dataclass(frozen=True, order=True)
class Access:
    """An access outside of an allocation of so many bytes: `reads` or `writes`, `before` or `beyond` it, or after it is
    `freed`."""

    access: str
    side: str
    bytes: int


class Record(ctypes.Structure):
    """A record of `guard.c`."""

    _fields_ = (
        ("bytes", ctypes.c_uint64),
        ("place", ctypes.c_uint32),
        ("write", ctypes.c_uint32),
    )


class Scope:
    """What is recorded in a scope. After it, `missed` is the number of allocations and accesses that no room was left for."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._taken, self.missed = library, 0, 0

    def taken(self) -> set[Access]:
        """The accesses that were recorded since the last call."""
        first, self._taken = self._taken, self._library.guard_recorded()
        records = self._library.guard_records()[first : self._taken]
        return {Access("writes" if one.write else "reads", SIDES[one.place], int(one.bytes)) for one in records}


def compiler() -> list[str]:
    """The command of the C compiler: CC, or the first of the usual names. Raises Unavailable if there is none."""
    names = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for command in names:
        if shutil.which(command[0]) is not None:
            return command
    missing = " or ".join(command[0] for command in names)
    raise Unavailable(f"no C compiler ({missing}): install one, or name it in CC")


def compile_to(path: Path) -> None:
    """Compile the library. Raises Unavailable if the compiler fails."""
    command = [*compiler(), "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-ldl"]
    process = subprocess.run(command, input=SOURCE, capture_output=True, text=True, errors="replace")
    if process.returncode:
        said = next((line for line in process.stderr.splitlines() if "error" in line), f"status {process.returncode}")
        raise Unavailable(f"the C compiler {command[0]} fails: {said}")


def cache_folders() -> Iterator[Path]:
    """Yield folders for the compiled library, the best first."""
    if cached := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cached, "quantized-backend-conformance")
    elif home := os.environ.get("HOME"):
        yield Path(home, ".cache", "quantized-backend-conformance")
    yield Path(tempfile.gettempdir(), f"quantized-backend-conformance-{os.getuid()}")


def compiled() -> Path:
    """The library, compiled unless it is cached. Raises Unavailable if it cannot be."""
    if sys.platform != "linux":
        raise Unavailable(f"memory is guarded on Linux only, and this is {sys.platform}")
    name = f"guard-{hashlib.sha256((SOURCE + platform.machine()).encode()).hexdigest()[:16]}.so"
    problem = "it belongs to another user"
    for folder in cache_folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():  # who may have put another library there
                continue
            if not (path := folder / name).exists():
                with tempfile.TemporaryDirectory(dir=folder) as aside:
                    compile_to(Path(aside, name))
                    Path(aside, name).replace(path)  # at once, so that nobody loads half a library
            return path
        except OSError as error:
            problem = str(error.strerror)
    raise Unavailable(f"no folder for the compiled guard: {problem}: name one that can be written in XDG_CACHE_HOME")


@cache
def installed() -> ctypes.CDLL:
    """The library, which has replaced the allocator of this process. Raises Unavailable if it cannot."""
    path = compiled()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"the compiled guard cannot be loaded: {error}") from error
    library.guard_records.restype = ctypes.POINTER(Record)
    if library.guard_install() != 0:
        raise Unavailable("torch's libraries do not call the allocator as the guard expects, or memory is refused")
    return library


@contextmanager
def guarded(side: str) -> Iterator[Scope]:
    """Guard this side of what torch allocates in this scope. Raises Unavailable if that is not possible."""
    library = installed()
    scope = Scope(library)
    library.guard_begin(PLACEMENTS[side])
    try:
        yield scope
    finally:
        library.guard_end()
        scope.missed = library.guard_missed()


def integers(key: str, count: int, low: int, high: int) -> Tensor:
    """Return int64 of shape (`count`,) in [`low`, `high`]. They depend on the arguments alone.

    The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with
    the position as its counter and the key's CRC-32 as its seed. int64 arithmetic wraps in the same way on every platform,
    while torch's samplers differ between platforms.
    """
    z = (torch.arange(1, count + 1) + (zlib.crc32(key.encode()) << 24)) * -0x61C8864680B583EB
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return ((z ^ ((z >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFF) % (high - low + 1) + low


def grid(key: str, shape: tuple[int, ...], low: int, high: int, exponent: int) -> Tensor:
    """Return float32 of `shape`: integers in [`low`, `high`] times 2**`exponent`.

    The first element is the low end and the last is the high end, if there are two.
    """
    values = integers(key, math.prod(shape), low, high)
    if values.numel() > 1:
        values[0], values[-1] = low, high
    return (values * 2.0**exponent).float().reshape(shape)


def fill(model: nn.Module, key: str, levels: int) -> None:
    """Set every parameter and buffer of `model` to dyadic values, with weights within ±`levels` steps of 2**-7.

    Variances make sqrt(var + eps) a power of two, so that a batch norm folds into dyadic weights. The factor
    gamma / sqrt(var + eps) is between 1/4 and 2 and varies between channels.
    """
    norms = {name: m for name, m in model.named_modules() if hasattr(m, "eps")}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, tensor in tensors:
            owner, _, leaf = name.rpartition(".")
            label, shape = f"{key}/{name}", tuple(tensor.shape)
            if leaf == "running_var":
                eps = norms[owner].eps
                tensor.copy_(4.0 ** integers(label, tensor.numel(), -1 if eps < 0.25 else 0, 1).double() - eps)
            elif leaf == "running_mean":
                tensor.copy_(grid(label, shape, -8, 8, -4))
            elif leaf.endswith("weight") and (owner in norms or tensor.dim() < 2):
                tensor.copy_(grid(label, shape, 1, 1, 0) * 2.0 ** integers(label, tensor.numel(), -1, 0).reshape(shape))
            elif leaf.startswith("bias"):
                # the results of a norm are multiples of small powers of two, and half of them would be ties without an offset
                tensor.copy_(grid(label, shape, -32, 32, -4) + (2.0**-9 if owner in norms else 0.0))
            elif tensor.is_floating_point() and tensor.dim() > 1:
                tensor.copy_(grid(label, shape, -levels, levels, -7))
                flat = tensor.flatten(1)
                if flat.shape[1] > 1:  # both ends in every row make per-channel scales powers of two
                    flat[:, 0], flat[:, -1] = -levels * 2.0**-7, levels * 2.0**-7


def rounded_up(observer: Any, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """Round scales up to powers of two and fit affine zero points to them."""
    mantissa, exponent = torch.frexp(scale)
    exact = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
    if observer.min_val.numel() == 0 or not torch.isfinite(observer.min_val).all():
        return scale, zero_point  # nothing was observed
    low = torch.clamp(observer.min_val, max=0.0)
    if observer.qscheme == torch.per_channel_affine_float_qparams:
        return exact, -observer.min_val / exact
    if observer.qscheme in (torch.per_tensor_affine, torch.per_channel_affine):
        fitted = observer.quant_min - torch.round(low / exact).to(zero_point.dtype)
        zero_point = torch.clamp(fitted, observer.quant_min, observer.quant_max).reshape(zero_point.shape)
    return exact, zero_point


class PowerOfTwoObserver(MinMaxObserver):
    """A min-max observer whose scale is rounded up to a power of two."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return rounded_up(self, *super().calculate_qparams())


def deviates(check, what):
    found.append(check)
    print(f"DEVIATES {check}: {what}")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = nn.LSTM(8, 6, proj_size=4)

    def forward(self, x):
        y = self.op(x)
        return y


qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.quint8, quant_min=0, quant_max=255, is_dynamic=True),
    weight=PowerOfTwoObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-128, quant_max=127),
)
mapping = QConfigMapping().set_global(qconfig)
backend_config = get_qnnpack_backend_config()
key = "nn.LSTM/dynamic-quint8/ptq/projection/exact"  # what the data are a function of


def inputs():
    return (grid(key + "/x", (5, 3, 8), -128, 127, -4),)


model = Model()
fill(model, key, 127)
model.eval()
prepared = prepare_fx(model, mapping, inputs(), backend_config=backend_config)
prepared(*inputs())
prepared.eval()
for side in PLACEMENTS:
    given = inputs()
    with guarded(side) as scope:  # packs the weights into guarded memory, too
        lowered = convert_fx(copy.deepcopy(prepared), backend_config=backend_config)
        lowered(*[x.clone() for x in given])
    for access in sorted(scope.taken()):
        deviates("memory", f"out of bounds: {access}")
if not found:
    print("CONFORMS")
sys.exit(bool(found))
