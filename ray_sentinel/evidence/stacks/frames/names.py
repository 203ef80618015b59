"""Function names with the decorations of compiler, debugger and libc removed."""

from __future__ import annotations

from functools import lru_cache

from ray_sentinel import regex as re
from ray_sentinel.model.stacks import Frame

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::|\[abi:\w+\]")
_VERSION = re.compile(r"@+[A-Z]+_[\w.]+$|\.(constprop|part|isra|cold|lto_priv|llvm)\.?\d*")
_LIBC = re.compile(r"^_*(?:GI_+|libc_+|internal_+|new_+(?=sem)|x64_+(?=sys_))")
_LIBC_TAIL = re.compile(r"([a-z])(?:_nocancel|_cancel|_2_\d\w*|64)$")
_ADDRESS = re.compile(r"^(?:0x[0-9a-fA-F]+|\?\?|<unknown>|_?\[unknown\])$")
_UNDERSCORES = re.compile(r"^_+(?=[a-z])")

# The interpreter's own frames, which debuggers show between two Python calls.
_INTERPRETER = re.compile(
    r"^_?Py(Eval_Eval|Eval_Vector|Eval_Call|Object|Function|Run|Vectorcall|CFunction|Method|Main"
    r"|Bytes_?Main|Import|Gen_|Stack)\w*$|^_PyEval_\w+$|^(pybind11|torch::PythonArgParser)::.*$"
    r"|^_?_libc_start\w*$|^libc_start\w*$|^(_start|start_thread|clone3?|thread_run|pythread_wrapper"
    r"|execute_native_thread_routine|Py_RunMain|Py_BytesMain)$"
)
# Functions of CPython that do say something: they wait, or work in C.
_WAITS = re.compile(
    r"take_gil|PyGILState_\w+|PyEval_\w+Thread|PyThread_\w+|lock_\w+|time_\w+|os_\w+|sock_\w+"
    r"|select_\w+|sre_\w+|_?io_\w+|gc_\w+|deduce_unreachable|visit_\w+|long_\w+|k_mul|list_\w+"
)
_INTERPRETER_FILE = re.compile(
    r"(^|/)(lib)?python3[\w.]*$|(^|/)(Objects|Python|Programs)/\w+\.c$|(^|/)Include/internal/"
    r"|(^|/)Modules/(main|_threadmodule)\.c$"
)


@lru_cache(maxsize=32_768)
def plain(function: str) -> str:
    """A native function's name without templates, arguments, libc's prefixes and versions.

    >>> plain("___pthread_cond_timedwait64")
    'pthread_cond_timedwait'
    >>> plain("c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)")
    'c10d::Work::wait'
    """
    name = _ANONYMOUS.sub("", function)
    if "<" in name or "(" in name:
        name = _unnested(name)
    name = _VERSION.sub("", name).strip()
    # A return type precedes the name of an instantiated template.
    name = name.rsplit(" ", 1)[-1] if "operator" not in name else name
    if "::" not in name:
        stripped = _LIBC.sub("", name)
        stripped = _UNDERSCORES.sub("", stripped)
        name = _LIBC_TAIL.sub(r"\1", stripped) or name
    return name


def _unnested(name: str) -> str:
    """``name`` without what is in angle brackets or parentheses, at any depth."""
    kept: list[str] = []
    depth = 0
    for index, char in enumerate(name):
        if char in "<(":
            depth += 1
        elif char in ">)":
            # "->" and "operator>" close nothing.
            if depth and not (char == ">" and index and name[index - 1] in "-r"):
                depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept)


def last_name(function: str) -> str:
    """A Python function's own name; py-spy prints the qualified one since 3.11.

    >>> last_name("DataLoader.__next__"), last_name("f.<locals>.g"), last_name("<module>")
    ('__next__', 'g', '<module>')
    """
    return function.rsplit(".", 1)[-1]


def is_address(function: str) -> bool:
    """Whether a debugger had no name for the frame."""
    return bool(_ADDRESS.match(function))


@lru_cache(maxsize=32_768)
def place(frame: Frame) -> str:
    """The frame in a form that is equal for equal places in the code; "" if it has none.

    Addresses differ between processes, and the interpreter's own frames between tools.
    """
    if not frame.native:
        where = f"{frame.file}:{frame.line}" if frame.line else frame.file
        return f"{frame.function} ({where})" if where else frame.function
    if is_address(frame.function):
        return ""
    name = plain(frame.function)
    return "" if not name or is_interpreter(frame) else name


def is_eval_loop(frame: Frame) -> bool:
    """Whether a native frame is where CPython executes bytecode and releases the GIL on request.

    Only debuggers show it: py-spy puts Python's frames there, and leaves libpython's others out.
    """
    return frame.native and plain(frame.function).startswith("_PyEval_EvalFrame")


def is_interpreter(frame: Frame) -> bool:
    """Whether a native frame is only CPython passing from one Python call to the next."""
    if not frame.native:
        return False
    name = plain(frame.function)
    return bool(_INTERPRETER.match(name) or _INTERPRETER.match(frame.function)) or bool(
        _INTERPRETER_FILE.search(frame.file) and not _WAITS.match(name)
    )
