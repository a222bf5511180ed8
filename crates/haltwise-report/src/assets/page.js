// Reading values off the figures in a part of the page: by pointer, by touch, by arrow keys.
function haltwiseFigures(part) {
  "use strict";
  var svgNames = "http://www.w3.org/2000/svg";
  var plots = [].map.call(part.querySelectorAll(".plot .hit"), function (hit) {
    var figure = hit.parentNode;
    return {
      hit: hit,
      link: figure.getAttribute("data-link"),
      svg: figure.querySelector("svg"),
      marker: figure.querySelector(".marker"),
      tip: figure.querySelector(".tip"),
      data: JSON.parse(figure.querySelector("script").textContent),
      at: -1
    };
  });

  function nearest(places, x) {
    var best = 0;
    places.forEach(function (place, i) {
      if (Math.abs(place - x) < Math.abs(places[best] - x)) best = i;
    });
    return best;
  }

  function mark(plot, i) {
    var x = plot.data.x[i];
    var guide = plot.marker.querySelector(".guide");
    guide.setAttribute("x1", x);
    guide.setAttribute("x2", x);
    plot.marker.querySelectorAll("circle").forEach(function (dot) { dot.remove(); });
    plot.data.rows.forEach(function (row) {
      var y = row.y[i];
      // A value beyond the top of the panel has no place in it.
      if (y === null || y === undefined || y < plot.data.top - 1) return;
      var dot = document.createElementNS(svgNames, "circle");
      dot.setAttribute("class", "dot " + (row.series || "s1"));
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y);
      dot.setAttribute("r", 4);
      plot.marker.appendChild(dot);
    });
    plot.marker.classList.add("on");
    plot.at = i;
  }

  function tell(plot, i) {
    var table = document.createElement("table");
    plot.data.rows.forEach(function (row) {
      var line = table.insertRow();
      var label = line.insertCell();
      if (row.series) {
        var swatch = document.createElement("i");
        swatch.style.background = "var(--" + row.series + ")";
        label.appendChild(swatch);
      }
      label.appendChild(document.createTextNode(row.label));
      line.insertCell().textContent = row.values[i];
    });
    var head = document.createElement("b");
    head.textContent = plot.data.heads[i];
    plot.tip.replaceChildren(head, table);
    plot.tip.hidden = false;
    // Beside the guide, on the side with more room, and never off the figure.
    var scale = plot.svg.getBoundingClientRect().width / plot.data.width;
    var x = plot.data.x[i] * scale, width = plot.tip.offsetWidth;
    var all = plot.data.width * scale;
    var left = x + 14 + width <= all ? x + 14 : x - 14 - width;
    plot.tip.style.left = Math.max(0, Math.min(left, all - width)) + "px";
    plot.tip.style.top = plot.data.top * scale * 0.75 + "px";
  }

  // The figures that follow this one, itself among them.
  function linked(plot) {
    return plots.filter(function (other) {
      return other === plot || (plot.link && other.link === plot.link);
    });
  }

  function show(plot, i) {
    linked(plot).forEach(function (other) {
      // Figures start at different steps, so the heading says which is meant.
      var same = other.data.heads.indexOf(plot.data.heads[i]);
      other.marker.classList.remove("on");
      if (same >= 0) mark(other, same);
    });
    tell(plot, i);
  }

  function hide(plot) {
    linked(plot).forEach(function (other) { other.marker.classList.remove("on"); });
    plot.tip.hidden = true;
  }

  plots.forEach(function (plot) {
    function point(event) {
      var box = plot.svg.getBoundingClientRect();
      show(plot, nearest(plot.data.x, (event.clientX - box.left) / box.width * plot.data.width));
    }
    plot.hit.addEventListener("pointermove", point);
    plot.hit.addEventListener("pointerdown", point);
    plot.hit.addEventListener("pointerleave", function (event) {
      // A finger that lifts leaves its value standing, until another is asked for.
      if (event.pointerType === "mouse" && document.activeElement !== plot.hit) hide(plot);
    });
    plot.hit.addEventListener("focus", function () {
      if (plot.hit.matches(":focus-visible")) show(plot, Math.max(plot.at, 0));
    });
    plot.hit.addEventListener("blur", function () { hide(plot); });
    plot.hit.addEventListener("keydown", function (event) {
      var last = plot.data.x.length - 1;
      var to = { ArrowLeft: plot.at - 1, ArrowRight: plot.at + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide(plot);
      if (to === undefined) return;
      event.preventDefault();
      show(plot, Math.max(0, Math.min(last, to)));
    });
  });

}
haltwiseFigures(document);

// On paper nothing can be unfolded, so all that is printed is.
(function () {
  "use strict";
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = [].filter.call(document.querySelectorAll("details"), function (d) { return !d.open; });
    folded.forEach(function (d) { d.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (d) { d.open = false; });
  });
})();
