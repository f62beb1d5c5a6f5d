"""The build backend of this package (PEP 517 and 660): a wheel is a zip file of the modules.

It has no requirements, so pip builds offline. libembps.so goes into the wheel, beside the modules:
the file that EMBPS_LIBRARY names, else the one in the folder that --config-settings build=DIR
names, else in build/ of the checkout, which has to be built. A wheel with the library is for this
platform alone; one without, of the archive of sources, is for any, and looks for the library when
it is imported. So does an editable installation, which therefore takes no folder of a build.
"""

import base64
import hashlib
import io
import os
import pathlib
import sysconfig
import tarfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKOUT = ROOT.parent.parent
PACKAGE = "embps"
LIBRARY = "libembps.so"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file in an archive, so that equal trees give equal wheels


def project():
    """The [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def find_library(config_settings):
    """The library that belongs to the package, or None. What was named and is not there is an error,
    and so is a checkout that is not built: without a library nothing can be imported."""
    named = os.environ.get("EMBPS_LIBRARY")
    if named:
        library = pathlib.Path(named).resolve()
        if not library.is_file():
            raise FileNotFoundError(f"EMBPS_LIBRARY: {library} is no file")
        return library
    folder = (config_settings or {}).get("build")
    if folder:
        library = pathlib.Path(folder).resolve() / LIBRARY
        if not library.is_file():
            raise FileNotFoundError(f"build={folder}: there is no {library}; build embps first")
        return library
    library = CHECKOUT / "build" / LIBRARY
    if library.is_file():
        return library
    if (CHECKOUT / "CMakeLists.txt").is_file() and CHECKOUT / "worker" / "python" == ROOT:
        raise FileNotFoundError(
            f"there is no {library}: build embps first (cmake -G Ninja -S . -B build && ninja -C build), or name "
            f"another one by --config-settings build=DIR or by EMBPS_LIBRARY=FILE")
    return None


def module_files():
    """Path in the archive -> content, of all that is installed but the library."""
    names = sorted(path for pattern in ("*.py", "py.typed") for path in (ROOT / PACKAGE).rglob(pattern))
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in names}


def metadata():
    """METADATA of the wheel, PKG-INFO of the source archive."""
    about = project()
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}",
             f"Summary: {about['description']}", f"Requires-Python: {about['requires-python']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in about["dependencies"]]
    for extra, requirements in about["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {r}; extra == "{extra}"' for r in requirements]
    lines += ["Description-Content-Type: text/markdown", "", ""]
    return "\n".join(lines).encode() + (ROOT / "README.md").read_bytes()


def dist_info():
    about = project()
    return f"{about['name']}-{about['version']}.dist-info"


def tag(has_library):
    if not has_library:
        return "py3-none-any"
    return "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def wheel_file(has_library):
    pure = "false" if has_library else "true"
    return (f"Wheel-Version: 1.0\nGenerator: embps_backend\nRoot-Is-Purelib: {pure}\n"
            f"Tag: {tag(has_library)}\n").encode()


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write_wheel(folder, files, has_library):
    """Writes a wheel of files and its metadata; returns its name."""
    about, info = project(), dist_info()
    files = dict(files)
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = wheel_file(has_library)
    record = "".join(record_line(name, content) for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"{about['name']}-{about['version']}-{tag(has_library)}.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return name


def get_requires_for_build_wheel(config_settings=None):
    del config_settings
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517. Returns the name of the wheel."""
    del metadata_directory
    files = module_files()
    library = find_library(config_settings)
    if library is not None:
        files[f"{PACKAGE}/{LIBRARY}"] = library.read_bytes()
    return write_wheel(wheel_directory, files, library is not None)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660: a wheel that leads to this folder. The library is looked for when it is imported."""
    del metadata_directory
    folder = (config_settings or {}).get("build")
    if folder:
        raise ValueError(f"build={folder}: an editable installation has no library of its own: set EMBPS_LIBRARY="
                         f"{pathlib.Path(folder).resolve() / LIBRARY} where embps is imported, without build=")
    return write_wheel(wheel_directory, {"embps_editable.pth": f"{ROOT}\n".encode()}, False)


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: the sources of the package, without the library. Returns the name of the archive."""
    del config_settings
    about = project()
    base = f"{about['name']}-{about['version']}"
    files = module_files() | {"PKG-INFO": metadata()}
    for path in ("pyproject.toml", "README.md", "backend/embps_backend.py"):
        files[path] = (ROOT / path).read_bytes()
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz",
                      format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return f"{base}.tar.gz"
