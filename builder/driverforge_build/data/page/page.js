"use strict";
// Search and filters of the coverage page. What is shown is in the page's own tables: this script hides parts
// of them, and writes texts from them as text, never as markup.
(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId("filters"), query = byId("q"), answer = byId("answer"), count = byId("count");
  const choices = ["os", "arch", "branch"].map(byId);
  const statuses = [...byId("statuses").querySelectorAll("input")];
  const THERE = ["ready", "older"];
  const MACHINES = new Map([["x86_64", "amd64"], ["aarch64", "arm64"]]);

  const groups = [...document.querySelectorAll(".group")].map((section) => {
    const {os, arch} = section.dataset, fold = section.querySelector("details");
    const columns = [...section.querySelectorAll("thead th")].slice(1);
    const group = {section, fold, os, arch, columns, name: section.querySelector("h2").textContent};
    group.rows = [...section.querySelectorAll("tbody tr")].map((line) => {
      const row = {line, kernel: line.dataset.kernel, group};
      row.cells = [...line.cells].slice(1).map((place, number) => {
        const shown = place.firstElementChild, driver = columns[number].dataset.driver;
        if (!shown) return {place};
        const id = `${os}-${arch}-${driver}-${row.kernel || "jit"}`;
        return {place, shown, row, driver, status: shown.className, text: `${id} ${group.name}`.toLowerCase()};
      });
      return row;
    });
    return group;
  });
  const rows = groups.flatMap((group) => group.rows);
  const cells = rows.flatMap((row) => row.cells).filter((cell) => cell.shown);
  const kernels = new Set(rows.map((row) => row.kernel).filter(Boolean));
  const folded = groups.map((group) => group.fold.open);

  // What a person typed or pasted: a kernel, a system, an architecture, and words that a name has to have.
  function understood(text) {
    const told = {os: "", arch: "", kernel: "", words: text.toLowerCase().split(/\s+/).filter(Boolean)};
    const words = text.split(/\s+/).filter(Boolean);
    const release = Object.fromEntries(
      [...text.matchAll(/(?:^|\s)(ID|VERSION_ID)=["']?([\w.-]+)/g)].map(([, key, value]) => [key, value]));
    if (release.ID) {
      const [id, version] = [release.ID, release.VERSION_ID || ""];
      const names = [id + version, id + version.split(".")[0]];
      told.os = names.find((name) => groups.some((group) => group.os === name)) || names[0];
      told.words = [];
    }
    const uname = words[0] === "Linux" && words.length > 2;
    if (uname) {
      told.arch = MACHINES.get(words.find((word) => MACHINES.has(word))) || "";
      told.words = [words[2].toLowerCase()];
    }
    const known = words.find((word) => kernels.has(word));
    if (known && (uname || release.ID || words.length === 1)) {
      told.kernel = known;
      told.words = [];
    } else if (told.words.length === 1 && /^\d+\.\d+[.-]/.test(told.words[0])
        && !cells.some((cell) => cell.text.includes(told.words[0]))) {
      told.kernel = uname ? words[2] : words[0];
    }
    return told;
  }

  function wanted() {
    const [os, arch, branch] = choices.map((choice) => choice.value);
    const told = understood(query.value);
    const only = statuses.filter((box) => box.checked).map((box) => box.value);
    return {...told, os: os || told.os, arch: arch || told.arch, branch, only};
  }

  const ofBranch = (driver, branch) => !branch || driver.split(".")[0] === branch;

  // Whether a cell is of the system, architecture, branch that are asked for.
  function inScope(cell, want) {
    const {os, arch} = cell.row.group;
    return (!want.os || os === want.os) && (!want.arch || arch === want.arch) && ofBranch(cell.driver, want.branch);
  }

  function matches(cell, want) {
    return inScope(cell, want)
      && (!want.kernel || cell.row.kernel === want.kernel)
      && (!want.only.length || want.only.includes(cell.status))
      && want.words.every((word) => cell.text.includes(word));
  }

  function apply() {
    const want = wanted();
    const all = !query.value.trim() && !want.only.length && choices.every((choice) => !choice.value);
    let shown = 0;
    groups.forEach((group, number) => {
      let found = 0;
      for (const column of group.columns) column.hidden = !ofBranch(column.dataset.driver, want.branch);
      for (const row of group.rows) {
        let here = 0;
        row.cells.forEach((cell, place) => {
          cell.place.hidden = group.columns[place].hidden;
          if (!cell.shown) return;
          cell.shown.hidden = !matches(cell, want);
          here += !cell.shown.hidden;
        });
        row.line.hidden = !here;
        found += here;
      }
      group.section.hidden = !found;
      group.found = found;
      if (all) group.fold.open = folded[number];
      shown += found;
    });
    // a search that leaves little is an answer: nobody shall have to open it
    if (!all && shown <= 300) for (const group of groups) group.fold.open = group.found > 0;
    count.textContent = all ? "" : `${shown} of ${cells.length} shown`;
    tell(want);
    return shown;
  }

  function make(tag, props, ...children) {
    const element = Object.assign(document.createElement(tag), props);
    element.append(...children);
    return element;
  }

  function item(cell) {
    const {group} = cell.row, code = cell.shown.querySelector("dl code");
    const there = THERE.includes(cell.status), reason = cell.shown.querySelector("div > p:not([class])");
    const label = cell.shown.firstElementChild.cloneNode(true);
    const line = make("li", {className: cell.status}, make("span", {className: "what"}, ...label.childNodes),
      " ", make("small", {}, group.name));
    const modules = cell.shown.querySelector(".modules");
    if (there) line.append(make("p", {}, make("code", {}, code.textContent)));
    if (there && modules) line.append(make("p", {}, `modules: ${modules.textContent}`));
    else if (!there && reason) line.append(make("p", {}, reason.textContent));
    return line;
  }

  function list(found) {
    const rank = (cell) => statuses.findIndex((box) => box.value === cell.status);
    return make("ul", {}, ...found.sort((one, two) => rank(one) - rank(two)).map(item));
  }

  const plural = (number) => number === 1 ? "1 image" : `${number} images`;

  function near(kernel) {
    const alike = (other) => {
      let length = 0;
      while (length < kernel.length && other[length] === kernel[length]) length += 1;
      return length;
    };
    return [...kernels].filter((other) => alike(other) > 2).sort((one, two) => alike(two) - alike(one)).slice(0, 3);
  }

  function tell(want) {
    answer.hidden = !want.kernel;
    answer.replaceChildren();
    if (!want.kernel) return;
    const scope = cells.filter((cell) => inScope(cell, want));
    const found = scope.filter((cell) => cell.row.kernel === want.kernel);
    const there = found.filter((cell) => THERE.includes(cell.status));
    answer.className = there.length ? "yes" : "no";
    answer.append(make("h2", {}, there.length ? `Yes: ${plural(there.length)} for ` : "No image for ",
      make("code", {}, want.kernel)));
    if (found.length) {
      answer.append(list(found));
    } else {
      answer.append(make("p", {}, "The plan does not know this kernel. If it is new, ",
        make("code", {}, "driverforge lock"), " finds it, and the pipeline’s next run builds its image."));
      const others = near(want.kernel).map((kernel) => {
        const button = make("button", {type: "button"}, kernel);
        button.addEventListener("click", () => { query.value = kernel; changed(); query.focus(); });
        return button;
      });
      if (others.length) answer.append(make("p", {className: "near"}, "Near: ", ...others));
    }
    if (there.length) return;
    const places = new Set(found.map((cell) => cell.row.group));
    const jit = scope.filter((cell) => !cell.row.kernel && [...THERE, "due"].includes(cell.status)
      && (!places.size || places.has(cell.row.group)));
    if (!jit.length) return;
    answer.append(make("h3", {}, "Images that compile on the node, for any kernel whose headers it can get"));
    answer.append(jit.length <= 8 ? list(jit)
      : make("p", {}, `There are ${jit.length}: choose system, architecture and branch above.`));
  }

  // The filters stand in the address, so that a view can be shared.
  function toHash() {
    const words = new URLSearchParams();
    if (query.value.trim()) words.set("q", query.value.trim());
    for (const choice of choices) if (choice.value) words.set(choice.id, choice.value);
    for (const box of statuses) if (box.checked) words.append("is", box.value);
    const hash = words.toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  function fromHash() {
    const words = new URLSearchParams(location.hash.slice(1));
    query.value = words.get("q") || "";
    for (const choice of choices) {
      const value = words.get(choice.id) || "";
      choice.value = [...choice.options].some((option) => option.value === value) ? value : "";
    }
    for (const box of statuses) box.checked = words.getAll("is").includes(box.value);
    apply();
  }

  function changed() {
    apply();
    toHash();
  }

  // How old the page is, on the day on which somebody reads it.
  function ages() {
    const words = new Intl.RelativeTimeFormat("en", {numeric: "auto"});
    for (const moment of document.querySelectorAll("time")) {
      const hours = (Date.parse(moment.dateTime) - Date.now()) / 3600e3;
      if (Number.isNaN(hours)) continue;
      const [number, unit] = hours < -48 ? [hours / 24, "day"] : hours < -2 ? [hours, "hour"] : [hours * 60, "minute"];
      moment.after(` (${words.format(Math.round(number), unit)})`);
    }
  }

  let waiting;
  query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(changed, 120); });
  form.addEventListener("change", (event) => { if (event.target !== query) changed(); });
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); changed(); });
  addEventListener("hashchange", fromHash);
  const close = (focus) => {
    for (const open of document.querySelectorAll("details[name=cell][open]")) {
      open.open = false;
      if (focus) open.firstElementChild.focus();
    }
  };
  addEventListener("keydown", (event) => { if (event.key === "Escape") close(true); });
  addEventListener("click", (event) => { if (!event.target.closest("details[name=cell]")) close(false); });
  addEventListener("beforeprint", () => { for (const group of groups) group.fold.open = true; });
  // a phone's screen is for the answer
  byId("more").open = matchMedia("(min-width: 40rem)").matches || /(os|arch|branch|is)=/.test(location.hash);
  form.hidden = false;
  ages();
  fromHash();
})();
