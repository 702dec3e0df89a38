"""Facts of a machine and its RDMA device, for a report that strangers read: no names of hosts or
users, no addresses, GIDs, GUIDs or serial numbers are asked for."""

import functools
import glob
import os
import platform
import re
import resource
import shutil
import subprocess

SOFTWARE = {"0xffffff": "SoftRoCE", "0x626d74": "soft-iWARP"}  # by vendor, as ibv_devinfo has it
PACKAGES = ("libibverbs1", "librdmacm1", "ibverbs-providers", "rdma-core", "perftest")
MODULES = ("ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "rdma_rxe", "siw", "mlx4_ib", "mlx5_ib", "bnxt_re",
           "irdma", "efa", "qedr", "hns_roce_hw_v2", "iw_cxgb4", "ionic_rdma", "ib_ipoib", "nvidia_peermem")
BOOT_WORDS = ("iommu", "intel_iommu", "amd_iommu", "pci", "hugepages", "hugepagesz", "default_hugepagesz",
              "transparent_hugepage", "isolcpus", "nohz_full", "mitigations")
MOST_GIDS = 64  # that are looked at: tables have up to 1,024 places, most of them empty
# Of `ibv_devinfo -v`: what the store, its tests or its speed depend on.
ATTRIBUTES = ("transport", "fw_ver", "vendor_id", "vendor_part_id", "hw_ver", "board_id", "atomic_cap",
              "max_qp", "max_qp_wr", "max_cq", "max_cqe", "max_mr", "max_mr_size", "max_mw", "max_sge",
              "max_sge_rd", "max_srq", "max_srq_wr", "max_srq_sge", "max_qp_rd_atom", "max_qp_init_rd_atom",
              "max_res_rd_atom", "device_cap_flags")


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def output(*command):
    """What a command prints, on both streams; says so where it is not installed or does not end."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=30)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` did not end within 30 s"
    return done.stdout


def matches(pattern, text, otherwise="unknown"):
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else otherwise


def folder_of(device):
    return os.path.join("/sys/class/infiniband", device)


def devices():
    return sorted(os.path.basename(path) for path in glob.glob("/sys/class/infiniband/*"))


@functools.cache
def verbs_attributes(device):
    """Some lines of `ibv_devinfo -v`; a list of flags that follows one is on its line."""
    attributes, last = {}, None
    for line in output("ibv_devinfo", "-v", "-d", device).splitlines():
        key, colon, value = line.strip().partition(":")
        if colon:
            last = key if key in ATTRIBUTES and key not in attributes else None
            if last:
                attributes[last] = value.strip()
        elif last and re.fullmatch(r"[A-Za-z0-9_ ]+", key):
            attributes[last] += " " + key
    return attributes


def kind_of(device):
    """What the device is: a word for people."""
    attributes = verbs_attributes(device)
    return SOFTWARE.get(attributes.get("vendor_id", "").lower(), "an RDMA adapter")


def has_atomics(device):
    return not verbs_attributes(device).get("atomic_cap", "").startswith("ATOMIC_NONE")


def has_windows(device):
    return verbs_attributes(device).get("max_mw") != "0"


def is_iwarp(device):
    return verbs_attributes(device).get("transport", "").startswith("iWARP")


def memlock_text(limit):
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit // 1024} KiB"


def limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    memory = read("/proc/meminfo")
    pools = [f"{os.path.basename(pool).removeprefix('hugepages-')}: {read(pool, 'nr_hugepages')},"
             f" {read(pool, 'free_hugepages')} free" for pool in glob.glob("/sys/kernel/mm/hugepages/*")]
    return {"memlock": f"{memlock_text(soft)}, at most {memlock_text(hard)}",
            "user": "root" if os.geteuid() == 0 else "not root",
            "memory": matches(r"^MemTotal:\s*(.*)", memory),
            "huge pages": "; ".join(sorted(pools)) or "none",
            "transparent huge pages": matches(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled")),
            "of shared memory": matches(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))}


def system():
    cpus = output("lscpu")
    nodes = matches(r"^NUMA node\(s\):\s*(.*)", cpus)
    boot = [word for word in read("/proc/cmdline").split() if word.partition("=")[0] in BOOT_WORDS]
    container = any(os.path.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv"))
    return {"system": matches(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release")),
            "kernel": f"{platform.release()} {platform.machine()}",
            "machine": " ".join(read("/sys/class/dmi/id", part) for part in ("sys_vendor", "product_name")).strip()
                       or "unknown",
            "processor": matches(r"^Model name:\s*(.*)", cpus),
            "processors": f"{os.cpu_count()}, NUMA nodes: {nodes}",
            "hypervisor": matches(r"^Hypervisor vendor:\s*(.*)", cpus, "none"),
            "container": "yes" if container else "no",
            "IOMMU groups": str(len(glob.glob("/sys/kernel/iommu_groups/*"))),
            "boot options": " ".join(boot) or "none of interest"}


def software():
    versions = output("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES)
    found = dict(line.split() for line in versions.splitlines() if len(line.split()) == 2)
    modules = [f"{name} {read('/sys/module', name, 'version')}".strip() for name in MODULES
               if os.path.isdir(os.path.join("/sys/module", name))]
    return {**{name: found.get(name, "not installed as a package") for name in PACKAGES},
            "modules": ", ".join(modules) or "none loaded",
            "network namespaces": {"Y": "shared", "N": "exclusive"}.get(
                read("/sys/module/ib_core/parameters/netns_mode"), "unknown")}


def adapter(device):
    folder = folder_of(device)
    pci = os.path.join(folder, "device")
    driver = os.path.basename(os.path.realpath(os.path.join(pci, "driver")))
    facts = {"device": f"{device}: {kind_of(device)}", "node type": read(folder, "node_type"),
             "firmware": read(folder, "fw_ver") or "none", "board": read(folder, "hca_type") or "unknown",
             **verbs_attributes(device)}
    if os.path.exists(os.path.join(pci, "vendor")):
        facts |= {
            "driver": driver,
            "PCI": " ".join(f"{name} {read(pci, name)}" for name in ("vendor", "device", "subsystem_vendor",
                                                                     "subsystem_device")),
            "PCI link": f"{read(pci, 'current_link_speed')}, width {read(pci, 'current_link_width')}; at most"
                        f" {read(pci, 'max_link_speed')}, width {read(pci, 'max_link_width')}",
            "NUMA node": f"{read(pci, 'numa_node')}, processors {read(pci, 'local_cpulist')}"}
    return facts


def gid_kind(gid):
    """What sort of address a GID is, without the address."""
    if not gid.strip(":0"):
        return None
    if gid.startswith("0000:0000:0000:0000:0000:ffff:"):
        return "IPv4"
    return "link-local" if gid.startswith("fe80:") else "IPv6 or InfiniBand"


def ports(device):
    """{port: facts}."""
    found = {}
    for folder in sorted(glob.glob(os.path.join(folder_of(device), "ports", "*"))):
        gids, links = [], set()
        for index in range(MOST_GIDS):
            kind = gid_kind(read(folder, "gids", str(index)))
            if kind is None:
                continue
            link = read(folder, "gid_attrs", "ndevs", str(index))
            gids.append(" ".join(filter(None, (str(index), read(folder, "gid_attrs", "types", str(index)), kind,
                                               link))))
            links |= {link} - {""}
        links |= set(os.listdir(os.path.join(folder_of(device), "device", "net"))
                     if os.path.isdir(os.path.join(folder_of(device), "device", "net")) else ())
        links |= set(re.findall(rf"^link {device}/{os.path.basename(folder)} .* netdev (\S+)",
                                output("rdma", "link", "show"), re.MULTILINE))  # the sole place of soft-iWARP's
        facts = {"state": read(folder, "state"), "physical": read(folder, "phys_state"),
                 "rate": read(folder, "rate"), "link layer": read(folder, "link_layer"),
                 "GIDs": "; ".join(gids) or "none"}
        for link in sorted(links):
            facts[f"interface {link}"] = (f"MTU {read('/sys/class/net', link, 'mtu')},"
                                          f" {read('/sys/class/net', link, 'operstate')}")
            facts[f"PFC of {link}"] = " ".join(output("dcb", "pfc", "show", "dev", link).split()) or "nothing shown"
        found[os.path.basename(folder)] = facts
    return found


def counters(device):
    """{name: number} of the device's ports: packets, retransmissions, errors."""
    numbers = {}
    for path in glob.glob(os.path.join(folder_of(device), "ports", "*", "*counters", "*")):
        text = read(path)
        port, _, name = path.split(os.sep)[-3:]
        if text.isdigit():
            numbers[f"port {port} {name}"] = int(text)
    return numbers


def changed(before, after):
    return {name: number - before.get(name, 0) for name, number in sorted(after.items())
            if number != before.get(name, 0)}


def all_facts(device, limits_before):
    """{title: {fact: value}}. `limits_before`: limits() before the caller raised them."""
    about = {"System": system(), "Limits and memory": limits_before, "RDMA software": software(),
             f"Device {device}": adapter(device)}
    for port, facts in ports(device).items():
        about[f"Port {device}/{port}"] = facts
    others = [name for name in devices() if name != device]
    about["Other devices"] = {name: f"{read(folder_of(name), 'hca_type')} firmware {read(folder_of(name), 'fw_ver')}"
                              for name in others} or {"devices": "none"}
    return about
